"""How probes are trained: the order of rows, dropout, steps by the formula of transformers 4; and
gradients of parts, which add up to those of the whole minibatch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from papa.heads.constants import control
from papa.models.encoder import Encoder
from papa.probes.chunks import Chunk, Learned, chunks_of, total_loss, train_in_chunks
from papa.probes.evaluate import build_probe
from papa.probes.features import PackedFeatures, compute_features
from papa.probes.probes import MaskedProbe, SequenceProbe, TokenProbe, dropped
from papa.probes.training import Learner, Losses, Window, adamw, take_step, train
from papa.ranking.learned import trainable_mix
from papa.spec import ProbeSpec, TaskSpec
from papa.text.corpus import TokenisedCorpus, TokenisedSplit
from papa.text.tokens import IGNORED
from tests.probes.conftest import LAYERS, with_probe

SPEC = ProbeSpec(learning_rate=1e-2, batch_size=1, epochs=1)


def noting(rows_by_epoch: dict[int, list[np.ndarray]]) -> Window:

    def window(rows: np.ndarray, epoch: int, index: int) -> list[Losses]:
        def losses(batch: torch.Tensor, step: int) -> torch.Tensor:
            rows_by_epoch.setdefault(epoch, []).append(rows[batch.numpy()])
            return torch.ones(2)

        return [losses]

    return window


@pytest.mark.parametrize(("rows", "window"), [(1, 8), (8, 8), (9, 8), (100, 16), (5000, 4096)])
def test_each_epoch_of_a_seed_shuffles_all_rows(rows: int, window: int) -> None:
    twice: tuple[dict[int, list[np.ndarray]], ...] = {}, {}
    progress_calls = list[tuple[int, int]]()
    spec = SPEC.model_copy(update={"batch_size": 4, "epochs": 2})
    for rows_by_epoch in twice:
        learner = Learner([{"params": [nn.Parameter(torch.ones(2, 1))]}], [5, 7])
        options: dict[str, object] = {
            "rows": rows,
            "progress": lambda *both: progress_calls.append(both),
        }
        train([learner], noting(rows_by_epoch), spec, window=window, **options)
    orders, repeated = (
        [np.concatenate(epoch_order, axis=1) for epoch_order in each.values()] for each in twice
    )
    assert np.array_equal(np.sort(orders), [[range(rows)] * 2] * 2)
    assert np.array_equal(orders, repeated)
    assert rows == 1 or len({tuple(order) for epoch in orders for order in epoch}) == 4
    for epoch in orders:
        first = np.sort(epoch[:, :window])
        assert np.array_equal(*first), "seeds share windows"
    assert rows <= window or not np.array_equal(
        *(np.sort(epoch_order[0, :window]) for epoch_order in orders)
    )
    assert progress_calls[-1] == (2 * rows, 2 * rows)


def test_sequence_probes_have_the_authors_dropout_with_the_encoders(
    encoder: Encoder,
    tasks: dict[str, TaskSpec],
    corpora: dict[str, TokenisedCorpus],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for task, model_type, dropout, share in (
        ("reviews", "bert", True, 0.1),
        ("review_pairs", "deberta", True, 0.1),
        ("reviews", "bert", False, 0.0),
        ("reviews", "roberta", True, 0.0),
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
    parameter = nn.Parameter(torch.ones(2))
    plain = nn.Parameter(torch.ones(2))
    first = torch.zeros(2)
    second = torch.zeros(2)
    expected = torch.ones(2)
    ours = adamw([{"params": [parameter]}], spec)
    theirs = torch.optim.AdamW([plain], lr=1e-2, weight_decay=decay)
    for step in range(1, 4):
        gradient = torch.tensor([1e-8, 1.0]) * step
        parameter.grad = gradient.clone()
        plain.grad = gradient.clone()
        ours.step()
        theirs.step()
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        correction = math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected = expected * (1 - 1e-2 * decay) - 1e-2 * correction * first / (
            second.sqrt() + 1e-8
        )
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=0)
    assert abs(float((parameter - plain).detach()[0])) > 1e-3


MINIBATCH = np.arange(16)
CPU = torch.device("cpu")


Build = Callable[..., tuple[Learned, TokenisedSplit]]


@pytest.fixture
def build(
    encoder: Encoder, tasks: dict[str, TaskSpec], corpora: dict[str, TokenisedCorpus]
) -> Build:

    def built(name: str, dropout: bool = False) -> tuple[Learned, TokenisedSplit]:
        task = with_probe(tasks[name], encoder_dropout=dropout)
        constants = control("toeplitz", encoder.layers, encoder.heads, task.slots)
        groups, loss_on = trainable_mix(encoder, constants, corpora[name], task, seed=0)
        return (groups, loss_on(encoder)), corpora[name].split("train")

    return built


def total(learned: Learned, chunks: Sequence[Chunk]) -> tuple[float, list[torch.Tensor]]:
    groups, loss = learned
    trained = [parameter for group in groups for parameter in group["params"]]
    for parameter in trained:
        parameter.grad = None
    return float(total_loss([loss], chunks, trained)), [parameter.grad for parameter in trained]


def far_apart(gradients: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference of any gradient, relative to its largest entry."""
    return max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(gradients, expected, strict=True)
    )


@pytest.mark.parametrize("name", ["reviews", "review_pairs", "wnut17", "wikitext"])
def test_parts_add_up_to_the_whole_minibatch(build: Build, name: str) -> None:
    learned, split = build(name)
    minibatch = np.random.default_rng(0).permutation(len(split))[:16]
    chunks = chunks_of(split, minibatch, 60, (0,))
    whole_loss, whole = total(learned, chunks_of(split, minibatch, 10**6, (0,)))
    loss, gradients = total(learned, chunks)
    assert len(chunks) > 2
    assert loss == pytest.approx(whole_loss, rel=1e-6)
    # Float32 sums of other shapes: 1e-6 of the largest entry and a few roundings.
    assert far_apart(gradients, whole) < 5e-6
    equal = [chunk._replace(share=1 / len(chunks)) for chunk in chunks]
    assert far_apart(total(learned, equal)[1], whole) > 1e-3

    rows = np.concatenate([chunk.rows for chunk in chunks]).tolist()
    labelled = [row for row in minibatch.tolist() if (split.labels_of([row]) != IGNORED).any()]
    assert len(set(rows)) == len(rows), "every row is in one part"
    assert set(labelled) <= set(rows) <= set(minibatch.tolist())
    assert sum(chunk.share for chunk in chunks) == pytest.approx(1, abs=1e-12)
    assert len({chunk.dropout_seed for chunk in chunks}) == len(chunks)


def test_dropout_follows_from_the_seed_that_each_part_has_for_itself(
    build: Build, encoder: Encoder, tasks: dict[str, TaskSpec]
) -> None:
    ((groups, loss), split) = build("reviews", dropout=True)
    seeds_used = list[int]()
    chunk = chunks_of(split, MINIBATCH, 60, (0,))[0]
    once = loss(chunk).item()
    torch.manual_seed(5)
    assert loss(chunk).item() == once
    assert loss(chunk._replace(dropout_seed=1)).item() != once

    def noted(noted_chunk: Chunk) -> torch.Tensor:
        seeds_used.append(noted_chunk.dropout_seed)
        return loss(noted_chunk)

    train_in_chunks((groups, noted), encoder, split, tasks["reviews"].probe, seed=0)
    assert len({*seeds_used}) == len(seeds_used) >= 2 * 64 / 8


def test_a_minibatch_without_labels_is_a_step_without_gradient() -> None:
    """As for a probe on stored features: only what earlier steps set in motion moves on."""
    theta = nn.Parameter(torch.ones(3))
    steps = list[float]()
    optimizer = adamw([{"params": [theta]}], SPEC)
    for chunks in ([], [Chunk(MINIBATCH, 1.0, 1.0, 0)], []):
        before = theta.detach().clone()

        def losses(*_: object, step_chunks: list[Chunk] = chunks) -> torch.Tensor:
            return total_loss([lambda chunk: theta.square().sum()], step_chunks, [theta])

        loss, norm = take_step(losses, torch.zeros(1, 1, dtype=torch.int64), 0, optimizer, 1.0)
        assert (float(loss), float(norm)) == (0, 0) or chunks
        steps.append(float((theta.detach() - before).abs().max()))
    assert steps[0] == 0
    assert 0 < steps[2] < steps[1]


SIZES = {"layers": LAYERS + 1, "width": 384, "slots": 64}


@pytest.fixture
def features(encoder: Encoder, corpora: dict[str, TokenisedCorpus]) -> PackedFeatures:
    split = corpora["reviews"].split("train")
    return compute_features(encoder, split, 512, "float32", rows=split.rows[:8])


def test_rows_that_are_selected_give_what_they_gave(features: PackedFeatures) -> None:
    probe = SequenceProbe((0, 1), **SIZES, labels=2)
    rows = [3, 0, 3]
    chosen = features.select(torch.tensor(rows), features.values.device)
    inputs = probe.inputs(chosen, torch.arange(3).expand(2, -1))
    for selected_input, expected in zip(
        inputs, probe.inputs(features, torch.tensor([rows] * 2)), strict=True
    ):
        torch.testing.assert_close(selected_input, expected)


def test_a_seeds_loss_is_the_mean_over_its_own_tokens(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    features = compute_features(encoder, corpora["wnut17"].split("train"), 512, "float32")
    sizes = {"layers": LAYERS + 1, "width": 384, "labels": 13}
    rows = torch.arange(6).view(2, 3)
    assert len({*features.lengths[:6].view(2, 3).sum(1).tolist()}) == 2, "seeds differ in tokens"
    seed_losses = TokenProbe((0, 1), **sizes).losses(features, rows)
    for seed in range(2):
        first, last = features.offsets[[3 * seed, 3 * seed + 3]]
        logits = TokenProbe((seed,), **sizes)(features.values[first:last].flatten(1)[None])[0]
        chosen = torch.arange(len(logits)), features.labels[first:last]
        torch.testing.assert_close(seed_losses[seed], -logits.log_softmax(-1)[chosen].mean())


def test_dropout_drops_a_tenth_by_seed() -> None:
    values = torch.ones(2, 200, 384)
    with_dropout = dropped(values, 0.1, (7, 8))
    assert with_dropout.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert float((with_dropout == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(with_dropout[1], dropped(values[:1], 0.1, (8,))[0])
    assert not torch.equal(with_dropout[0], with_dropout[1])


def test_probes_start_as_the_paper_says_each_from_its_seed_alone() -> None:
    probe, single_probe = (SequenceProbe(seeds, **SIZES, labels=2) for seeds in ((5, 9), (9,)))
    assert bool((probe.slot_weights == 1 / 64).all())
    for linear in (probe.dense, probe.classifier):
        assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert not linear.bias.any()
    assert not torch.equal(probe.dense.weight[0], probe.dense.weight[1])
    for name, parameter in single_probe.named_parameters():
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
    rows = torch.arange(12)
    embeddings = encoder.word_embeddings[:, :width]
    split = corpora["wikitext"].split("train")
    features = compute_features(encoder, split, 1024, "float32", rows=rows.numpy())
    probe = MaskedProbe((0, 1), layers=LAYERS + 1, width=384, word_embeddings=embeddings)
    assert ("narrow.weight" in dict(probe.named_parameters())) == (width == 128)
    with torch.no_grad():
        predicted = probe.predictions(features, rows)
        losses = probe.losses(features, rows.expand(2, -1))
    assert predicted.shape == (2, len(features.labels))
    assert bool((predicted < 0).all())
    torch.testing.assert_close(-predicted.mean(1), losses, atol=1e-4, rtol=1e-5)
