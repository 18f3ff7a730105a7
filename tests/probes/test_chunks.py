"""Gradients of chunks add up to those of the whole minibatch."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import nn

from papa.heads.constants import control
from papa.models.encoder import Encoder
from papa.probes.chunks import Chunk, ChunkLoss, accumulate_gradients, chunks_of, train_in_chunks
from papa.probes.training import Groups, adamw, take_step
from papa.ranking.learned import build_mix
from papa.spec import ProbeSpec
from papa.text.corpus import TokenisedSplit
from papa.text.tokens import IGNORED
from tests.probes.conftest import Corpora, Tasks, with_probe

SPEC = ProbeSpec(learning_rate=1e-2, batch_size=1, epochs=1)
MINIBATCH = np.arange(16)


Learned = tuple[Groups, ChunkLoss]
Build = Callable[..., tuple[Learned, TokenisedSplit]]


@pytest.fixture
def build(encoder: Encoder, tasks: Tasks, corpora: Corpora) -> Build:

    def built(name: str, dropout: bool = False) -> tuple[Learned, TokenisedSplit]:
        task = with_probe(tasks[name], encoder_dropout=dropout)
        constants = control("toeplitz", encoder.layers, encoder.heads, task.slots)
        mix = build_mix(encoder, constants, corpora[name], task, seed=0)
        return (mix.groups, mix.loss_on(encoder)), corpora[name].split("train")

    return built


def total(learned: Learned, chunks: Sequence[Chunk]) -> tuple[float, list[torch.Tensor]]:
    groups, loss = learned
    trained = [parameter for group in groups for parameter in group["params"]]
    for parameter in trained:
        parameter.grad = None
    total = float(accumulate_gradients([loss], chunks, trained))
    return total, [parameter.grad for parameter in trained]


def far_apart(gradients: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference of any gradient, relative to its largest entry."""
    pairs = zip(gradients, expected, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


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


def test_dropout_follows_from_the_seed_of_its_part(
    build: Build, encoder: Encoder, tasks: Tasks
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

    train_in_chunks(groups, lambda _: noted, encoder, split, tasks["reviews"].probe, seed=0)
    assert len({*seeds_used}) == len(seeds_used) >= 2 * 64 / 8


def test_a_minibatch_without_labels_is_a_step_without_gradient() -> None:
    """As for a probe on stored features: only what earlier steps set in motion moves on."""
    theta = nn.Parameter(torch.ones(3))
    steps = list[float]()
    optimizer = adamw([{"params": [theta]}], SPEC)
    for chunks in ([], [Chunk(MINIBATCH, 1.0, 1.0, 0)], []):
        before = theta.detach().clone()

        def losses(*_: object, step_chunks: list[Chunk] = chunks) -> torch.Tensor:
            return accumulate_gradients([lambda chunk: theta.square().sum()], step_chunks, [theta])

        loss, norm = take_step(losses, torch.zeros(1, 1, dtype=torch.int64), 0, optimizer, 1.0)
        assert (float(loss), float(norm)) == (0, 0) or chunks
        steps.append(float((theta.detach() - before).abs().max()))
    assert steps[0] == 0
    assert 0 < steps[2] < steps[1]
