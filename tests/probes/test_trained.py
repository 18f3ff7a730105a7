"""Constant matrices trained with the probe, on real text and trained weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from papa.attention.constants import ConstantMatrices, control
from papa.attention.replacement import replaced
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe, evaluate_trained_cell
from papa.probes.joint import JointGradients, train_jointly
from papa.progress import ignore_progress
from papa.spec import ExecutionSpec, TaskSpec
from tests.probes.conftest import HEADS, LAYERS, with_probe

SLOTS = 64


@pytest.fixture
def task(tasks: dict[str, TaskSpec]) -> TaskSpec:
    return with_probe(tasks["cola"], epochs=2, batch_size=16, learning_rate=1e-3)


@pytest.fixture
def corpus(corpora: dict[str, TokenisedCorpus]) -> TokenisedCorpus:
    return corpora["cola"]


def test_training_moves_the_matrices_of_constant_heads_alone(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec
) -> None:
    start = control("toeplitz", LAYERS, 12, SLOTS)
    matrices = torch.nn.Parameter(start.matrices.clone())
    probe = build_probe(encoder, corpus, task, [0])
    with replaced(encoder, ConstantMatrices(matrices, start.seen, "trained"), HEADS[:18]):
        gradients = JointGradients(encoder, matrices, probe, corpus, dropout=False)
        train_jointly(
            encoder,
            gradients.of_parts,
            gradients.trained,
            corpus,
            spec=task.probe,
            rows=np.arange(32),
            epochs=1,
            rate=1e-2,
            seed=0,
            progress=ignore_progress,
        )
    moved = (matrices.detach() - start.matrices).abs().amax(dim=(2, 3)).flatten()
    assert bool((moved[:18] > 1e-3).all())
    assert not moved[18:].any()
    assert all(parameter.grad is None for parameter in encoder.model.parameters())


def test_every_seed_is_scored_as_if_alone(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus], tasks: dict[str, TaskSpec]
) -> None:
    task, constants = tasks["wikitext"], control("toeplitz", LAYERS, 12, 32)

    def scores(seeds: list[int]) -> list[float]:
        found = evaluate_trained_cell(
            encoder, constants, HEADS, corpora["wikitext"], task, seeds, execution=ExecutionSpec()
        )
        assert [scored.seed for scored in found] == seeds
        return [scored.score for scored in found]

    both = scores([0, 1])
    assert scores([1]) == both[1:] != both[:1]


def test_examples_stand_in_the_splits_order(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec
) -> None:
    """Batches are scored shortest first; what a row adds is paired with the same row of other
    cells.
    """
    matthews = task.model_copy(update={"metric": "matthews"})
    execution = ExecutionSpec(batch_tokens=256)
    constants = control("toeplitz", LAYERS, 12, SLOTS)
    (found,) = evaluate_trained_cell(
        encoder, constants, HEADS, corpus, matthews, [0], execution=execution
    )
    labels = corpus.split("validation").labels
    assert 0 < labels.mean() < 1
    # The last columns say which class each row has.
    np.testing.assert_array_equal(found.examples[:, -1], labels)
