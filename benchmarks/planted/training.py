"""Train small models in which only planted heads learn, and check what was planted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
)

import papa
from benchmarks.planted.kinds import (
    IGNORED,
    LENGTH,
    SYMBOLS,
    VOCABULARY,
    Head,
    PlantedKind,
    kinds,
)

WIDTH = 64
HEADS = 4
TOKENS = VOCABULARY + SYMBOLS
"""Marked symbols follow the plain ones."""
STEPS = 1_500
BATCH = 64
SOLVED = 0.05
"""Training ends once the loss, in nats, stayed below this."""
LEAST_COST = 0.2
"""How many nats a needed head costs at least, and all others together at most."""
HARM = 0.3
"""By how many nats a harmful decoy raises the loss at least."""
ATTEMPTS = 3
"""How often a model is trained anew, with another seed, if it does not hold what was planted."""


@dataclass(frozen=True)
class PlantedModel:
    """A trained model with its kind and what it was trained for.

    Attributes:
        kind: the kind, with the planted heads.
        seed: of weights and texts.
        model: a model of transformers, in evaluation mode.
        readout: the map from mean embeddings to classes that an embedding model was trained with.
        loss: the mean loss on fresh texts, in nats.
    """

    kind: PlantedKind
    seed: int
    model: PreTrainedModel
    readout: nn.Linear | None
    loss: float


def train_planted_model(kind: PlantedKind, layers: int, seed: int) -> PlantedModel:
    """Train a model of ``layers`` layers in which the planted heads of ``kind`` do the work."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = untrained_model(kind, layers)
    readout = nn.Linear(WIDTH, SYMBOLS) if kind.output == "embeddings" else None
    prepare_decoys(model, kind)
    freeze_decoys(model, {*kind.content_heads, *kind.position_heads})
    parameters = [*model.parameters(), *(readout.parameters() if readout else ())]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=100)
    average_loss = 10.0
    for _ in range(STEPS):
        ids, labels = kind.draw(BATCH, generator)
        with left_out_head(model, kind, generator):
            loss = planted_loss(model, readout, kind, ids, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        average_loss = 0.95 * average_loss + 0.05 * loss.item()
        if average_loss < SOLVED:
            break
    if kind.decoys == "harmful":
        add_harm(model, kind, generator)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.eval()
    with torch.no_grad():
        ids, labels = kind.draw(1_024, generator)
        final = planted_loss(model, readout, kind, ids, labels)
    return PlantedModel(kind, seed, model, readout, final.item())


def untrained_model(kind: PlantedKind, layers: int) -> PreTrainedModel:
    """Return a model of transformers with random weights that puts out what ``kind`` asks for."""
    if kind.output == "next words":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=TOKENS,
                n_positions=LENGTH,
                n_embd=WIDTH,
                n_layer=layers,
                n_head=HEADS,
                attn_pdrop=0.0,
                embd_pdrop=0.0,
                resid_pdrop=0.0,
                initializer_range=0.08,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    config = BertConfig(
        vocab_size=TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout=0.0,
        initializer_range=0.08,
    )
    config.num_labels = 2 if kind.output == "tags" else SYMBOLS
    if kind.output == "tags":
        return BertForTokenClassification(config)
    if kind.output == "masked words":
        return BertForMaskedLM(config)
    if kind.output == "embeddings":
        return BertModel(config, add_pooling_layer=False)
    return BertForSequenceClassification(config)


def planted_loss(
    model: PreTrainedModel,
    readout: nn.Linear | None,
    kind: PlantedKind,
    ids: Tensor,
    labels: Tensor,
) -> Tensor:
    """Return the mean cross entropy, in nats, of what the model was planted for."""
    outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    if readout is not None:
        return cross_entropy(readout(outputs.last_hidden_state.mean(1)), labels)
    logits = outputs.logits
    if kind.output == "next words":
        logits = logits[:, :-1]
        labels = labels[:, 1:]
    if kind.output == "classes":
        return cross_entropy(logits, labels)
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


@dataclass(frozen=True)
class HeadSlices:
    """The parameters of an attention layer, each with the axis along which heads lie."""

    queries_keys: tuple[tuple[nn.Parameter, int, int], ...]
    """(parameter, axis, offset): head h starts at offset + h·width."""
    values: tuple[tuple[nn.Parameter, int, int], ...]
    output: tuple[nn.Parameter, int]


def attention_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the attention modules, the first layer first."""
    base = model.base_model
    if isinstance(model, GPT2LMHeadModel):
        return [base.get_submodule(f"h.{layer}.attn") for layer in range(layers_of(model))]
    return [
        base.get_submodule(f"encoder.layer.{layer}.attention") for layer in range(layers_of(model))
    ]


def layers_of(model: PreTrainedModel) -> int:
    """Return the number of layers."""
    return int(model.config.num_hidden_layers)


def head_slices(model: PreTrainedModel) -> list[HeadSlices]:
    """Return the parameters of each layer's heads, the first layer first."""
    is_decoder = isinstance(model, GPT2LMHeadModel)
    return [
        decoder_slices(attention) if is_decoder else encoder_slices(attention)
        for attention in attention_layers(model)
    ]


def decoder_slices(attention: nn.Module) -> HeadSlices:
    """Return the parameters of the heads of GPT-2's attention, whose three maps are one."""
    weight = attention.get_parameter("c_attn.weight")
    bias = attention.get_parameter("c_attn.bias")
    return HeadSlices(
        queries_keys=((weight, 1, 0), (bias, 0, 0), (weight, 1, WIDTH), (bias, 0, WIDTH)),
        values=((weight, 1, 2 * WIDTH), (bias, 0, 2 * WIDTH)),
        output=(attention.get_parameter("c_proj.weight"), 0),
    )


def encoder_slices(attention: nn.Module) -> HeadSlices:
    """Return the parameters of the heads of BERT's attention."""

    def entries(name: str) -> tuple[tuple[nn.Parameter, int, int], ...]:
        return tuple(
            (attention.get_parameter(f"self.{name}.{part}"), 0, 0) for part in ("weight", "bias")
        )

    return HeadSlices(
        queries_keys=(*entries("query"), *entries("key")),
        values=entries("value"),
        output=(attention.get_parameter("output.dense.weight"), 1),
    )


def entries_of_head(head: int, offset: int = 0) -> slice:
    """Return the entries of one head along its axis."""
    width = WIDTH // HEADS
    return slice(offset + head * width, offset + (head + 1) * width)


def decoys_of(model: PreTrainedModel, planted: set[Head]) -> Iterator[tuple[HeadSlices, int]]:
    """Yield each decoy, as its layer's slices and its number."""
    for layer, slices in enumerate(head_slices(model)):
        for head in range(HEADS):
            if (layer, head) not in planted:
                yield slices, head


def prepare_decoys(model: PreTrainedModel, kind: PlantedKind) -> None:
    """Scale the random maps of the decoys as the kind asks."""
    planted = {*kind.content_heads, *kind.position_heads}
    with torch.no_grad():
        for slices, head in decoys_of(model, planted):
            if kind.decoys == "loud":
                parameter, axis = slices.output
                parameter.movedim(axis, 0)[entries_of_head(head)] *= 5
            if kind.decoys == "sharp":
                for parameter, axis, offset in slices.queries_keys:
                    parameter.movedim(axis, 0)[entries_of_head(head, offset)] *= 4


def freeze_decoys(model: PreTrainedModel, planted: set[Head]) -> None:
    """Let the maps of all heads but the planted ones keep their start: their gradients are zero."""
    masks: dict[nn.Parameter, Tensor] = {}
    for slices, head in decoys_of(model, planted):
        parameter, axis = slices.output
        places = [*slices.queries_keys, *slices.values, (parameter, axis, 0)]
        for parameter, axis, offset in places:
            mask = masks.setdefault(parameter, torch.ones_like(parameter))
            mask.movedim(axis, 0)[entries_of_head(head, offset)] = 0
    for parameter, mask in masks.items():
        parameter.register_hook(lambda gradient, mask=mask: gradient * mask)


def output_maps(model: PreTrainedModel) -> list[nn.Module]:
    """Return the map behind the heads of each layer; its input holds the heads side by side."""
    name = "c_proj" if isinstance(model, GPT2LMHeadModel) else "output.dense"
    return [attention.get_submodule(name) for attention in attention_layers(model)]


@contextmanager
def left_out_head(
    model: PreTrainedModel, kind: PlantedKind, generator: torch.Generator
) -> Iterator[None]:
    """Make one of the redundant heads, at random, output zeros while the block runs."""
    if not kind.is_redundant:
        yield
        return
    choice = int(torch.randint(len(kind.content_heads), (), generator=generator))
    layer, head = kind.content_heads[choice]

    def without_head(_module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        outputs = inputs[0].clone()
        outputs[..., entries_of_head(head)] = 0
        return (outputs,)

    hook = output_maps(model)[layer].register_forward_pre_hook(without_head)
    try:
        yield
    finally:
        hook.remove()


def harmful_head(kind: PlantedKind) -> Head:
    """Return the decoy that adds noise: the last one of the planted head's layer."""
    layer, _ = kind.content_heads[0]
    return layer, HEADS - 1


def add_harm(model: PreTrainedModel, kind: PlantedKind, generator: torch.Generator) -> None:
    """Double what one decoy writes until its noise costs the model ``HARM`` nats."""
    layer, head = harmful_head(kind)
    parameter, axis = head_slices(model)[layer].output
    ids, labels = kind.draw(1_024, generator)
    with torch.no_grad():
        clean_loss = planted_loss(model, None, kind, ids, labels)
        while planted_loss(model, None, kind, ids, labels) < clean_loss + HARM:
            parameter.movedim(axis, 0)[entries_of_head(head)] *= 2


def loss_without(planted: PlantedModel, heads: list[Head], substitute: str) -> float:
    """Return the mean loss on fresh texts, in nats, with ``heads`` replaced by a substitute."""
    ids, labels = planted.kind.draw(512, torch.Generator().manual_seed(3))
    data = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
    with (
        torch.no_grad(),
        papa.ablated(planted.model, heads, substitute=substitute, data=data),
    ):
        return planted_loss(planted.model, planted.readout, planted.kind, ids, labels).item()


def holds_what_was_planted(planted: PlantedModel, substitute: str) -> bool:
    """Return whether the model works without all other heads, and loses by each needed one.

    Of a redundant pair both are replaced at once: one alone costs nothing, which is the point.
    """
    needed = planted.kind.needed_heads(substitute)
    layers = len(output_maps(planted.model))
    every_head = [(layer, head) for layer in range(layers) for head in range(HEADS)]
    others = [head for head in every_head if head not in needed]
    start = loss_without(planted, [], substitute)
    if loss_without(planted, others, substitute) > start + LEAST_COST:
        return False
    groups = [sorted(needed)] if planted.kind.is_redundant else [[head] for head in needed]
    return all(loss_without(planted, group, substitute) > start + LEAST_COST for group in groups)


@dataclass(frozen=True)
class ModelRequest:
    """Which model to train: the name of its kind, its number of layers, and its seed."""

    kind: str
    layers: int
    seed: int


def verified_model(request: ModelRequest) -> PlantedModel | None:
    """Return a model in which the planted heads do the work while others use their average
    attention.

    None after some attempts without one.
    """
    (kind,) = [kind for kind in kinds(request.layers) if kind.name == request.kind]
    for attempt in range(ATTEMPTS):
        planted = train_planted_model(kind, request.layers, request.seed + 1_000 * attempt)
        if holds_what_was_planted(planted, "average"):
            return planted
    return None
