"""The stages of a study, ours against the plain way: averaging, features, λ, probing and the whole."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import Measured, in_turn, seconds
from benchmarks.setting import Setting, encoder, model_inputs, padded_batches, plain_model
from papa.attention.average import average_split
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import Head, replaced
from papa.encoders.bert import BERT
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import extract_features
from papa.ranking.learned import train_lambda
from papa.ranking.orders import head_order
from papa.spec import ExecutionSpec, FeaturesSpec, RankingSpec
from papa.spec.cells import constant_heads
from tests.plain import plainly, with_constants, with_mix

BATCH_TOKENS = encoder().tokens_per_batch(None)
SEEDS = (0, 1, 2)
FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)


def average(setting: Setting) -> ConstantMatrices:
    """Our average over the training text."""
    model, slots = encoder(), setting.task.slots
    return average_split(model, setting.corpus.split("train"), slots=slots, batch_tokens=BATCH_TOKENS).average()


@torch.inference_mode()
def plain_average(setting: Setting) -> Tensor:
    """Padded, eager, every matrix of a batch held: layers × batch × heads × S²."""
    sums, counts = torch.zeros(()), torch.zeros(())
    for batch in padded_batches(setting):
        output = plain_model()(**model_inputs(batch), output_attentions=True)
        attentions = torch.stack(output.attentions, dim=1)
        real = batch["attention_mask"].float()
        both = real[:, :, None] * real[:, None, :]
        sums = sums + (attentions * both[:, None, None]).sum(dim=0)
        counts = counts + both.sum(dim=0)
    return sums / counts.clamp(min=1)


def features(setting: Setting, folder: Path) -> None:
    """Our features of the training text."""
    path = folder / f"features-{time.monotonic_ns()}"
    extract_features(
        encoder(),
        setting.corpus.split("train"),
        path,
        batch_tokens=BATCH_TOKENS,
        dtype="float32",
    )
    path.unlink()


@torch.inference_mode()
def plain_features(setting: Setting) -> None:
    """Padded, eager: all hidden states of all slots, batch after batch."""
    for batch in padded_batches(setting):
        plain_model()(**model_inputs(batch), output_hidden_states=True)


@dataclass
class PlainProbe:
    """The sequence probe on padded hidden states, one seed."""

    slots: int
    layers: int
    width: int

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.weights = nn.Parameter(torch.full((self.layers, self.slots), 1 / self.slots))
        self.dense = nn.Linear(self.layers * self.width, self.width)
        self.classifier = nn.Linear(self.width, 2)
        self.parameters = [self.weights, *self.dense.parameters(), *self.classifier.parameters()]

    def loss(self, hidden_states: Sequence[Tensor], attention_mask: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of a padded batch."""
        real = attention_mask.float()
        pooled = [
            torch.einsum("bs,bsd->bd", weight * real, h) for weight, h in zip(self.weights, hidden_states, strict=True)
        ]
        logits = self.classifier(torch.tanh(self.dense(torch.cat(pooled, dim=1))))
        return nn.functional.cross_entropy(logits, labels)


def plain_probing_epoch(setting: Setting, constants: Tensor | None = None, heads: Sequence[Head] = ()) -> None:
    """One epoch of one seed: the frozen encoder runs again, the probe takes its steps."""
    model, labels = plain_model(), torch.from_numpy(setting.corpus.split("train").labels)
    probe = PlainProbe(setting.task.slots, model.config.num_hidden_layers + 1, model.config.hidden_size)
    optimizer = torch.optim.AdamW(probe.parameters, lr=setting.task.probe.learning_rate)
    for batch in padded_batches(setting):
        hidden_states = _plain_hidden_states(batch, constants, heads)
        optimizer.zero_grad()
        probe.loss(hidden_states, batch["attention_mask"], labels[batch["rows"]]).backward()
        optimizer.step()


def _plain_hidden_states(batch: dict[str, Tensor], constants: Tensor | None, heads: Sequence[Head]) -> Sequence[Tensor]:
    model = plain_model()
    with torch.no_grad():
        if constants is None:
            return model(**model_inputs(batch), output_hidden_states=True).hidden_states
        change = with_constants(constants, heads, batch["attention_mask"])
        with plainly(BERT.attentions(model), change):
            return model(**model_inputs(batch), output_hidden_states=True).hidden_states


def probing(
    setting: Setting, folder: Path, constants: ConstantMatrices | None = None, heads: Sequence[Head] = ()
) -> None:
    """Our cell: features once, all seeds, all epochs."""
    options: dict[str, Any] = {"features": FeaturesSpec(), "execution": ExecutionSpec(), "scratch": folder}
    if constants is None:
        evaluate_cell(encoder(), setting.corpus, setting.task, SEEDS, **options)
        return
    with replaced(encoder(), constants, heads):
        evaluate_cell(encoder(), setting.corpus, setting.task, SEEDS, **options)


def ranking(setting: Setting, constants: ConstantMatrices) -> None:
    """Our λ training, one epoch."""
    train_lambda(encoder(), constants, setting.corpus, setting.task, RankingSpec(epochs=1))


def plain_ranking(setting: Setting, constants: Tensor) -> None:
    """Padded, eager, the mix written out for every input; one epoch."""
    model, labels = plain_model(), torch.from_numpy(setting.corpus.split("train").labels)
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    theta = nn.Parameter(torch.zeros(layers, heads))
    probe = PlainProbe(setting.task.slots, layers + 1, model.config.hidden_size)
    optimizer = torch.optim.AdamW([theta, *probe.parameters], lr=setting.task.probe.learning_rate)
    for batch in padded_batches(setting):
        with plainly(BERT.attentions(model), with_mix(constants, theta.sigmoid(), batch["attention_mask"])):
            states = model(**model_inputs(batch), output_hidden_states=True).hidden_states
        optimizer.zero_grad()
        probe.loss(states, batch["attention_mask"], labels[batch["rows"]]).backward()
        optimizer.step()


def stage_rows(settings: dict[str, Setting], folder: Path) -> Iterator[Measured]:
    """Averaging and features on three corpora; λ, probing and the whole study on CoLA."""
    for setting, target in zip(settings.values(), (5.0, 7.0, 5.0), strict=True):
        yield in_turn(
            f"averaging, {setting.name}",
            partial(average, setting),
            partial(plain_average, setting),
            target=target,
        )
    for setting, target in zip(settings.values(), (4.5, 5.5, 3.5), strict=True):
        yield in_turn(
            f"features, {setting.name}",
            partial(features, setting, folder),
            partial(plain_features, setting),
            target=target,
        )
    cola = settings["cola"]
    epochs = cola.task.probe.epochs
    constants = average(cola)
    yield in_turn(
        "λ training, one epoch, cola S=64",
        lambda: ranking(cola, constants),
        lambda: plain_ranking(cola, constants.matrices),
        target=4,
        repeats=3,
    )
    yield in_turn(
        f"probing, {epochs} epochs × {len(SEEDS)} seeds, cola S=64",
        lambda: probing(cola, folder),
        lambda: plain_probing_epoch(cola),
        target=40,
        repeats=3,
        scale=epochs * len(SEEDS),
    )
    yield whole_study(cola, folder)


def whole_study(setting: Setting, folder: Path) -> Measured:
    """Average, λ (two epochs), five fractions × seeds × epochs; the plain way's epochs are timed once per fraction."""
    model = encoder()

    def ours() -> None:
        constants = average(setting)
        lambdas = train_lambda(model, constants, setting.corpus, setting.task, RankingSpec(epochs=2))
        order = head_order("lambda", lambdas[-1], model.layers, model.heads)
        for fraction in FRACTIONS:
            heads = constant_heads(order, fraction)
            probing(setting, folder, constants if heads else None, heads)

    matrices = average(setting).matrices
    order = head_order("first_to_last", None, model.layers, model.heads)

    def plain() -> float:
        spent = seconds(lambda: plain_average(setting)) + 2 * seconds(lambda: plain_ranking(setting, matrices))
        epochs = setting.task.probe.epochs * len(SEEDS)
        for fraction in FRACTIONS:
            heads = constant_heads(order, fraction)
            spent += epochs * seconds(partial(plain_probing_epoch, setting, matrices if heads else None, heads))
        return spent

    spent, plainly_spent = seconds(ours), plain()
    return Measured("whole study, cola S=64", spent, plainly_spent, plainly_spent / spent, 25)
