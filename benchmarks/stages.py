"""The stages of a study, ours against the plain way: averaging, features, λ, probing and the whole.

The plain way is padded, eager, a matrix for each input, features again for every epoch and seed.
All its batches have one shape, so a few of them tell what all of them take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.setting import (
    TITLES,
    Setting,
    base_sized,
    encoder,
    full_batch,
    model_inputs,
    padded_batches,
    plain_model,
    sample,
)
from benchmarks.timing import Comparison, Part, Row, in_turn
from papa.heads.average import average_of, average_split
from papa.heads.constants import ConstantMatrices
from papa.heads.replacement import replaced
from papa.models.encoder import Encoder
from papa.models.supported import BERT
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import compute_features
from papa.ranking.learned import train_lambda
from papa.ranking.orders import head_order
from papa.spec import ExecutionSpec, FeaturesSpec
from papa.spec.orders import Head, constant_heads
from papa.text.tokens import IGNORED
from tests.plain import plainly, with_constants, with_mix

SEEDS = (0, 1, 2)
FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)
LAMBDA_EPOCHS = 2
ENCODER_BATCH = 16
"""Rows in a batch where nothing is trained."""
FEW_TOKENS = 5120
"""Of the batches that are timed, padding included: about as long as our whole pass takes."""
Batch = dict[str, Tensor]


def few_batches(setting: Setting, size: int, work: Callable[[Batch], object]) -> Part:
    """Return some batches of the training text, counted as often as all its rows need."""
    few = max(1, FEW_TOKENS // (size * setting.task.slots))
    batches = list(islice(padded_batches(setting, size), few))
    share = len(setting.corpus.split("train")) / sum(len(batch["rows"]) for batch in batches)
    return Part(lambda: [work(batch) for batch in batches], share)


def plain_average(setting: Setting) -> Part:
    """Return every matrix of a batch is held: layers × batch × heads × S²."""
    total = [torch.zeros(()), torch.zeros(())]

    @torch.inference_mode()
    def add(batch: Batch) -> None:
        output = plain_model()(**model_inputs(batch), output_attentions=True)
        attentions = torch.stack(output.attentions, dim=1)
        real = batch["attention_mask"].float()
        both = real[:, :, None] * real[:, None, :]
        total[0] = total[0] + (attentions * both[:, None, None]).sum(dim=0)
        total[1] = total[1] + both.sum(dim=0)

    return few_batches(setting, ENCODER_BATCH, add)


def plain_features(setting: Setting) -> Part:
    """Return all hidden states of all slots, batch after batch."""

    @torch.inference_mode()
    def run(batch: Batch) -> None:
        plain_model()(**model_inputs(batch), output_hidden_states=True)

    return few_batches(setting, ENCODER_BATCH, run)


class PlainProbe:
    """A probe on padded hidden states, one seed: of sequences, or of tokens where tokens have the
    labels.
    """

    def __init__(self, setting: Setting, *parameters: nn.Parameter) -> None:
        config = plain_model().config
        labels = len(setting.corpus.label_names or ())
        layers = config.num_hidden_layers + 1
        width = config.hidden_size
        self.by_token = setting.corpus.kind == "words"
        self.weights = nn.Parameter(
            torch.full((layers, setting.task.slots), 1 / setting.task.slots)
        )
        self.dense = nn.Linear(layers * width, width)
        self.classifier = nn.Linear(width, labels)
        self.trained = [*parameters, *self.dense.parameters(), *self.classifier.parameters()]
        if not self.by_token:
            self.trained.append(self.weights)
        rate = setting.task.probe.learning_rate
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate, weight_decay=0)

    def step(self, hidden_states: Sequence[Tensor], batch: Batch) -> None:
        """Take one step of the optimizer on the cross-entropy of a padded batch."""
        if self.by_token:
            pooled = torch.cat(list(hidden_states), dim=-1)
        else:
            real = batch["attention_mask"].float()
            sums = [
                torch.einsum("bs,bsd->bd", w * real, h)
                for w, h in zip(self.weights, hidden_states, strict=True)
            ]
            pooled = torch.cat(sums, dim=-1)
        logits = self.classifier(torch.tanh(self.dense(pooled)))
        loss = nn.functional.cross_entropy(
            logits.flatten(0, -2), batch["labels"].flatten(), ignore_index=IGNORED
        )
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()


def plain_probing(
    setting: Setting, constants: Tensor | None = None, heads: Sequence[Head] = ()
) -> Part:
    """Return one epoch of one seed: the frozen encoder runs again, the probe takes its steps."""
    model = plain_model()
    probe = PlainProbe(setting)

    def train(batch: Batch) -> None:
        matrices = torch.empty(0) if constants is None else constants
        change = with_constants(matrices, heads, batch["attention_mask"])
        with torch.no_grad(), plainly(BERT.modules(model, BERT.attention) if heads else [], change):
            states = model(**model_inputs(batch), output_hidden_states=True).hidden_states
        probe.step(states, batch)

    return few_batches(setting, setting.task.probe.batch_size, train)


def plain_ranking(setting: Setting, constants: Tensor) -> Part:
    """Return one epoch of λ, the mix written out for every input."""
    model = plain_model()
    theta = nn.Parameter(
        torch.zeros(model.config.num_hidden_layers, model.config.num_attention_heads)
    )
    probe = PlainProbe(setting, theta)

    def train(batch: Batch) -> None:
        with plainly(
            BERT.modules(model, BERT.attention),
            with_mix(constants, theta.sigmoid(), batch["attention_mask"]),
        ):
            states = model(**model_inputs(batch), output_hidden_states=True).hidden_states
        probe.step(states, batch)

    return few_batches(setting, setting.task.probe.batch_size, train)


def average(setting: Setting) -> ConstantMatrices:
    """Return our average over the training text."""
    model = encoder()
    train = setting.corpus.split("train")
    tokens = model.tokens_per_batch(None)
    sums = average_split(model, train, slots=setting.task.slots, batch_tokens=tokens)
    return average_of(sums)


def features(setting: Setting, folder: Path) -> None:
    """Compute our features of the training text."""
    path = folder / f"features-{time.monotonic_ns()}"
    model = encoder()
    train = setting.corpus.split("train")
    tokens = model.tokens_per_batch(None)
    compute_features(model, train, tokens, "float32", file=path)
    path.unlink()


def ranking(setting: Setting, constants: ConstantMatrices, epochs: int = 1) -> Tensor:
    """Return our λ training."""
    probe = setting.task.probe.model_copy(update={"epochs": epochs})
    task = setting.task.model_copy(update={"probe": probe})
    return train_lambda(encoder(), constants, setting.corpus, task)


def probing(
    setting: Setting,
    folder: Path,
    constants: ConstantMatrices | None = None,
    heads: Sequence[Head] = (),
    epochs: int = 0,
    budget: float = 20.0,
    seeds: Sequence[int] = SEEDS,
) -> None:
    """Compute our cell: features once, all seeds, all epochs."""
    probe = setting.task.probe
    probe = probe.model_copy(update={"epochs": epochs or probe.epochs})
    with nullcontext() if constants is None else replaced(encoder(), constants, heads):
        evaluate_cell(
            encoder(),
            setting.corpus,
            setting.task.model_copy(update={"probe": probe}),
            seeds,
            features=FeaturesSpec(),
            execution=ExecutionSpec(features_budget_gb=budget),
            scratch=folder,
        )


def against_plain(stage: str, name: str, folder: Path) -> Comparison:
    """Return a stage on a corpus; an epoch of λ both ways on one thread, as minibatches as small as
    its stay on one worker.
    """
    setting = sample(name, folder)
    threads = torch.get_num_threads()
    if stage == "averaging":
        return in_turn(partial(average, setting), plain_average(setting))
    if stage == "features":
        return in_turn(partial(features, setting, folder), plain_features(setting))
    if stage == "probing":
        work, times = plain_probing(setting)
        epochs = setting.task.probe.epochs * len(SEEDS)
        return in_turn(partial(probing, setting, folder), Part(work, times * epochs))
    constants = average(setting)
    torch.set_num_threads(1)
    try:
        plain = plain_ranking(setting, constants.matrices)
        return in_turn(partial(ranking, setting, constants), plain)
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()
def constant_heads_against_sdpa() -> Comparison:
    """Return a whole encoder of BERT-base's size with all heads constant, n=256, no padding."""
    inputs = 8
    slots = 256
    stock = base_sized("sdpa")
    encoder = Encoder(base_sized("eager"))
    batch = full_batch(inputs, slots)
    shape = (encoder.layers, encoder.heads, slots, slots)
    everywhere = torch.ones(slots, slots, dtype=torch.bool)
    constants = ConstantMatrices(torch.rand(shape), everywhere, "average")
    order = head_order("first_to_last", None, encoder.layers, encoder.heads)

    def ours() -> None:
        with replaced(encoder, constants, order):
            encoder.token_states(batch)

    return in_turn(ours, Part(lambda: stock(input_ids=batch.input_ids.view(inputs, slots))))


def whole_study(name: str, folder: Path) -> Comparison:
    """Average, two epochs of λ, and five fractions × seeds × epochs."""
    setting = sample(name, folder)
    model = encoder()

    def ours() -> None:
        constants = average(setting)
        lambdas = ranking(setting, constants, epochs=LAMBDA_EPOCHS)
        order = head_order("lambda", lambdas[-1].numpy(), model.layers, model.heads)
        for fraction in FRACTIONS:
            heads = constant_heads(order, fraction)
            probing(setting, folder, constants if heads else None, heads)

    matrices = average(setting).matrices
    order = head_order("first_to_last", None, model.layers, model.heads)
    ranked = plain_ranking(setting, matrices)
    parts = [plain_average(setting), ranked._replace(times=ranked.times * LAMBDA_EPOCHS)]
    for fraction in FRACTIONS:
        work, times = plain_probing(setting, matrices, constant_heads(order, fraction))
        parts.append(Part(work, times * setting.task.probe.epochs * len(SEEDS)))
    return in_turn(ours, *parts)


def stage_rows(folder: Path) -> Iterator[Row]:
    """Yield a pass of the encoder on three corpora, λ and probing on CoLA, and whole studies."""
    whole = "whole encoder, all heads constant, against SDPA"
    yield Row("heads", whole, constant_heads_against_sdpa)
    measured = [
        (stage, stage, name)
        for name in ("cola", "ud", "rte")
        for stage in ("averaging", "features")
    ]
    measured += [
        ("λ", "λ training, one epoch, one thread", "cola"),
        ("probing", f"probing, 15 epochs × {len(SEEDS)} seeds", "cola"),
    ]
    for stage, title, name in measured:
        measure = partial(against_plain, stage, name, folder)
        yield Row(stage, f"{title}, {TITLES[name]}", measure)
    for name in ("cola", "wnut"):
        yield Row("study", f"whole study, {TITLES[name]}", partial(whole_study, name, folder))
