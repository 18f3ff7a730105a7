"""How probes are trained: the order of rows, dropout, steps by the formula of transformers 4; and
gradients of parts, which add up to those of the whole minibatch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from papa.heads.constants import control
from papa.heads.replacement import mixed_by
from papa.models.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.features import PackedFeatures, compute_features, live_features
from papa.probes.probes import MaskedProbe, SequenceProbe, TokenProbe, dropped
from papa.probes.training import (
    Groups,
    Losses,
    Part,
    PartLoss,
    adamw,
    parts_of,
    take_step,
    total_loss,
    train,
    train_parts,
)
from papa.ranking.learned import mixing
from papa.spec import ProbeSpec, TaskSpec
from papa.text.batches import micro_batch
from papa.text.corpus import TokenisedCorpus, TokenisedSplit
from papa.text.tokens import IGNORED
from tests.probes.conftest import LAYERS, with_probe

SPEC = ProbeSpec(learning_rate=1e-2, batch_size=1, epochs=1)


class Recorder:
    """Trains nothing, and notes which rows each seed sees, an epoch after the other."""

    def __init__(self) -> None:
        self.groups = [{"params": [nn.Parameter(torch.ones(2, 1))]}]
        self.seen = list[list[np.ndarray]]()

    def window(self, rows: np.ndarray, epoch: int, index: int) -> Losses:
        self.seen += [[] for _ in range(epoch + 1 - len(self.seen))]

        def losses(batch: torch.Tensor, step: int) -> torch.Tensor:
            self.seen[epoch].append(rows[batch.numpy()])
            return torch.ones(2)

        return losses


@pytest.mark.parametrize(("rows", "window"), [(1, 8), (8, 8), (9, 8), (100, 16), (5000, 4096)])
def test_each_seed_and_epoch_sees_all_rows_in_an_order_of_its_own(rows: int, window: int) -> None:
    learners, told = [Recorder(), Recorder()], list[tuple[int, int]]()
    spec = SPEC.model_copy(update={"batch_size": 4, "epochs": 2})
    how: dict[str, Any] = {"rows": rows, "progress": lambda *both: told.append(both)}
    for learner in learners:
        train(learner.groups, learner.window, spec, [5, 7], window=window, **how)
    orders, again = ([np.concatenate(one, axis=1) for one in each.seen] for each in learners)
    assert np.array_equal(np.sort(orders), [[range(rows)] * 2] * 2)
    assert np.array_equal(orders, again)
    assert rows == 1 or len({tuple(order) for epoch in orders for order in epoch}) == 4
    for epoch in orders:
        first = np.sort(epoch[:, :window])
        assert np.array_equal(*first), "seeds share windows"
    assert rows <= window or not np.array_equal(*(np.sort(one[0, :window]) for one in orders))
    assert told[-1] == (2 * rows, 2 * rows)


def test_sequence_probes_have_the_authors_dropout_with_the_encoders(
    encoder: Encoder,
    tasks: dict[str, TaskSpec],
    corpora: dict[str, TokenisedCorpus],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for task, model_type, dropout, share in (
        ("cola", "bert", True, 0.1),
        ("rte", "deberta", True, 0.1),
        ("cola", "bert", False, 0.0),
        ("cola", "roberta", True, 0.0),
        ("wnut17", "bert", True, 0.0),
    ):
        monkeypatch.setattr(encoder.config, "model_type", model_type, raising=False)
        spec = with_probe(tasks[task], encoder_dropout=dropout)
        probe: Any = build_probe(encoder, corpora[task], spec, [0])
        assert probe.dropout == share


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_follow_the_formula_of_transformers_4(decay: float) -> None:
    """m / ((√v + ε) / √(1 - β₂ᵗ)): for a gradient as small as ε this is another step than
    PyTorch's.
    """
    spec = SPEC.model_copy(update={"weight_decay": decay})
    parameter, plain = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    first, second, expected = torch.zeros(2), torch.zeros(2), torch.ones(2)
    ours = adamw([{"params": [parameter]}], spec)
    theirs = torch.optim.AdamW([plain], lr=1e-2, weight_decay=decay)
    for step in range(1, 4):
        gradient = torch.tensor([1e-8, 1.0]) * step
        parameter.grad, plain.grad = gradient.clone(), gradient.clone()
        ours.step()
        theirs.step()
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        correction = math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected = expected * (1 - 1e-2 * decay) - 1e-2 * correction * first / (
            second.sqrt() + 1e-8
        )
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=0)
    assert abs(float((parameter - plain).detach()[0])) > 1e-3


MINIBATCH = np.arange(16)
TASKS = ["cola", "rte", "wnut17", "wikitext"]
CPU = torch.device("cpu")


@dataclass
class Learner:
    """What trains λ on a task."""

    groups: Groups
    loss: PartLoss
    split: TokenisedSplit

    def parts(self, rows: np.ndarray = MINIBATCH, tokens: int = 60) -> list[Part]:
        return parts_of(self.split, rows, tokens, (0,))

    def total(self, parts: Sequence[Part]) -> tuple[float, list[torch.Tensor]]:
        """The loss, and the gradient of every parameter."""
        trained = [parameter for group in self.groups for parameter in group["params"]]
        for parameter in trained:
            parameter.grad = None
        found = float(total_loss(self.loss, parts, CPU))
        return found, [parameter.grad for parameter in trained]


@pytest.fixture
def build(
    encoder: Encoder, tasks: dict[str, TaskSpec], corpora: dict[str, TokenisedCorpus]
) -> Callable[..., Learner]:
    def built(name: str, dropout: bool = False) -> Learner:
        task = with_probe(tasks[name], encoder_dropout=dropout)
        constants = control("toeplitz", encoder.layers, encoder.heads, task.slots)
        given = mixing(encoder, constants, corpora[name], task, seed=0)
        return Learner(*given, corpora[name].split("train"))

    return built


def far_apart(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """The largest difference of any gradient, relative to its largest entry."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", TASKS)
def test_parts_add_up_to_the_whole_minibatch(build: Callable[..., Learner], name: str) -> None:
    learner = build(name)
    minibatch = np.random.default_rng(0).permutation(len(learner.split))[:16]
    parts = learner.parts(minibatch)
    whole_loss, whole = learner.total(learner.parts(minibatch, 10**6))
    loss, found = learner.total(parts)
    assert len(parts) > 2
    assert loss == pytest.approx(whole_loss, rel=1e-6)
    # Float32 sums of other shapes: 1e-6 of the largest entry and a few roundings.
    assert far_apart(found, whole) < 5e-6
    equal = [part._replace(share=1 / len(parts)) for part in parts]
    assert far_apart(learner.total(equal)[1], whole) > 1e-3

    rows = np.concatenate([part.rows for part in parts]).tolist()
    labelled = [
        row for row in minibatch.tolist() if (learner.split.labels_of([row]) != IGNORED).any()
    ]
    assert len(set(rows)) == len(rows), "every row is in one part"
    assert set(labelled) <= set(rows) <= set(minibatch.tolist())
    assert sum(part.share for part in parts) == pytest.approx(1, abs=1e-12)
    assert len({part.dropout_seed for part in parts}) == len(parts)


def test_the_whole_is_the_probes_own_mean_loss(
    build: Callable[..., Learner],
    encoder: Encoder,
    tasks: dict[str, TaskSpec],
    corpora: dict[str, TokenisedCorpus],
) -> None:
    """Negative log-probabilities, averaged over the labelled tokens: by hand."""
    learner, corpus = build("wnut17"), corpora["wnut17"]
    loss, _ = learner.total(learner.parts())
    probe, batch = (
        build_probe(encoder, corpus, tasks["wnut17"], [0]),
        micro_batch(learner.split, MINIBATCH),
    )
    constants = control("toeplitz", encoder.layers, encoder.heads, corpus.slots)
    half = torch.full((encoder.layers, encoder.heads), 0.5)
    with torch.no_grad(), mixed_by(encoder, constants, half):
        features = live_features(encoder.token_states(batch), learner.split, batch)
        logits = probe(features.values.flatten(1)[None])[0]
    expected = -logits.log_softmax(-1)[torch.arange(len(logits)), features.labels].mean()
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_dropout_follows_from_the_seed_that_each_part_has_for_itself(
    build: Callable[..., Learner], encoder: Encoder, tasks: dict[str, TaskSpec]
) -> None:
    learner, seen = build("cola", dropout=True), list[int]()
    loss, part = learner.loss, learner.parts()[0]
    once = loss(part).item()
    torch.manual_seed(5)
    assert loss(part).item() == once
    assert loss(part._replace(dropout_seed=1)).item() != once

    def noted(part: Part) -> torch.Tensor:
        seen.append(part.dropout_seed)
        return loss(part)

    train_parts((learner.groups, noted), encoder, learner.split, tasks["cola"].probe, seed=0)
    assert len({*seen}) == len(seen) >= 2 * 64 / 8


def test_a_minibatch_without_labels_is_a_step_without_gradient(
    build: Callable[..., Learner], tasks: dict[str, TaskSpec]
) -> None:
    """As for a probe on stored features: only what earlier steps set in motion moves on."""
    learner, steps = build("wnut17"), []
    (theta,) = learner.groups[0]["params"]
    optimizer = adamw(learner.groups, tasks["wnut17"].probe)
    for parts in ([], learner.parts(tokens=10**6), []):
        before, rows = theta.detach().clone(), torch.zeros(1, 1, dtype=torch.int64)

        def losses(*_: object, of: list[Part] = parts) -> torch.Tensor:
            return total_loss(learner.loss, of, CPU)

        loss, norm = take_step(losses, rows, 0, optimizer, 1.0)
        assert (float(loss), float(norm)) == (0, 0) or parts
        steps.append(float((theta.detach() - before).abs().max()))
    assert steps[0] == 0
    assert 0 < steps[2] < steps[1]


SIZES = {"layers": LAYERS + 1, "width": 384, "slots": 64}


@pytest.fixture
def features(encoder: Encoder, corpora: dict[str, TokenisedCorpus]) -> PackedFeatures:
    split = corpora["cola"].split("train")
    return compute_features(encoder, split, 512, "float32", rows=split.rows[:8])


def test_rows_that_are_selected_give_what_they_gave(features: PackedFeatures) -> None:
    probe, rows = SequenceProbe((0, 1), **SIZES, labels=2), [3, 0, 3]
    chosen = features.select(torch.tensor(rows), features.values.device)
    found = probe.inputs(chosen, torch.arange(3).expand(2, -1))
    for one, other in zip(found, probe.inputs(features, torch.tensor([rows] * 2)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_seeds_loss_is_the_mean_over_its_own_tokens(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    features = compute_features(encoder, corpora["wnut17"].split("train"), 512, "float32")
    sizes, rows = {"layers": LAYERS + 1, "width": 384, "labels": 13}, torch.arange(6).view(2, 3)
    assert len({*features.lengths[:6].view(2, 3).sum(1).tolist()}) == 2, "seeds differ in tokens"
    found = TokenProbe((0, 1), **sizes).losses(features, rows)
    for seed in range(2):
        (alone,) = TokenProbe((seed,), **sizes).losses(features, rows[seed : seed + 1])
        torch.testing.assert_close(found[seed], alone)


def test_dropout_drops_a_tenth_and_seeds_draw_their_own() -> None:
    values = torch.ones(2, 200, 384)
    found = dropped(values, 0.1, (7, 8))
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert float((found == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(found[1], dropped(values[:1], 0.1, (8,))[0])
    assert not torch.equal(found[0], found[1])


def test_probes_start_as_the_paper_says_each_from_its_seed_alone() -> None:
    probe, alone = (SequenceProbe(seeds, **SIZES, labels=2) for seeds in ((5, 9), (9,)))
    assert bool((probe.slot_weights == 1 / 64).all())
    for linear in (probe.dense, probe.classifier):
        assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert not linear.bias.any()
    assert not torch.equal(probe.dense.weight[0], probe.dense.weight[1])
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter[0], probe.get_parameter(name)[1])


def test_regression_is_scored_by_squared_error(features: PackedFeatures) -> None:
    probe = SequenceProbe((0,), **SIZES, labels=1, regression=True)
    features = replace(features, labels=torch.linspace(0, 1, 8))
    rows = torch.arange(8)
    predicted = probe.predictions(features, rows)
    assert predicted.shape == (1, 8)
    expected = (predicted[0] - features.labels).square().mean()
    torch.testing.assert_close(probe.losses(features, rows[None])[0], expected)


@pytest.mark.parametrize("width", [384, 128])
def test_predictions_are_log_probabilities_of_the_true_words(
    width: int, encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    """Also where word embeddings are narrow, and one more linear map leads to them."""
    rows, embeddings = torch.arange(12), encoder.word_embeddings[:, :width]
    split = corpora["wikitext"].split("train")
    features = compute_features(encoder, split, 1024, "float32", rows=rows.numpy())
    probe = MaskedProbe((0, 1), layers=LAYERS + 1, width=384, word_embeddings=embeddings)
    assert ("narrow.weight" in dict(probe.named_parameters())) == (width == 128)
    with torch.no_grad():
        found = probe.predictions(features, rows)
        losses = probe.losses(features, rows.expand(2, -1))
    assert found.shape == (2, len(features.labels))
    assert bool((found < 0).all())
    torch.testing.assert_close(-found.mean(1), losses, atol=1e-4, rtol=1e-5)
