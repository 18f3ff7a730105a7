"""Constant matrices trained with the probe, on real text and trained weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from papa.attention.constants import ConstantMatrices, control
from papa.attention.replacement import replaced
from papa.corpora.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.encoders.encoder import Encoder
from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.probes import joint, training
from papa.probes.evaluate import build_probe, evaluate_cell, evaluate_trained_cell
from papa.probes.joint import JointGradients, train_jointly
from papa.progress import ignore_progress
from papa.spec import EncoderSpec, ExecutionSpec, FeaturesSpec, LayoutSpec, TaskSpec
from papa.spec.file import resolve_study
from tests.probes.conftest import LAYERS

SLOTS = 24
HEADS = [(layer, head) for layer in range(LAYERS) for head in range(12)]


@pytest.fixture(scope="module")
def task() -> TaskSpec:
    entry = {
        "name": "reviews",
        "slots": SLOTS,
        "train_rows": 64,
        "validation_rows": 32,
        "probe": {"epochs": 2, "batch_size": 16, "learning_rate": 1e-3},
    }
    document = {"name": "t", "encoders": [EMBEDDED], "tasks": [entry]}
    return resolve_study(document, folder=Path(), origin="test").tasks[0]


@pytest.fixture(scope="module")
def corpus(task: TaskSpec, tmp_path_factory: pytest.TempPathFactory) -> TokenisedCorpus:
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED))
    folder = tmp_path_factory.mktemp("trained") / "corpus"
    tokenise_corpus(
        task, LayoutSpec(), load_tokenizer(reference), reference, folder, shard_rows=512
    )
    return load_corpus(folder)


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


@pytest.mark.parametrize("window", [4096, 48])
def test_matrices_see_the_minibatches_of_the_cells_they_are_compared_with(
    encoder: Encoder,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    window: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed, joined = list[list[int]](), list[list[int]]()
    probe_step, joint_step = training.train_step, joint.joint_step

    def seen_by_probe(probe, optimizer, features, rows, **options):
        probed.append(sorted(rows[0].tolist()))
        return probe_step(probe, optimizer, features, rows, **options)

    def seen_by_matrices(each, trained, optimizer, parts, **options):
        joined.append(sorted(row for part in parts for row in part.rows.tolist()))
        return joint_step(each, trained, optimizer, parts, **options)

    monkeypatch.setattr("papa.probes.minibatches.WINDOW_ROWS", window)
    monkeypatch.setattr(training, "train_step", seen_by_probe)
    monkeypatch.setattr(joint, "joint_step", seen_by_matrices)
    options = {"features": FeaturesSpec(), "execution": ExecutionSpec(), "scratch": tmp_path}
    evaluate_cell(encoder, corpus, task, [3], **options)
    constants = control("toeplitz", LAYERS, 12, SLOTS)
    evaluate_trained_cell(encoder, constants, HEADS, corpus, task, [3], execution=ExecutionSpec())
    assert probed == joined
    assert [len(rows) for rows in joined] == [16] * 8, "two epochs of 64 rows"
    assert sorted(row for rows in joined[:4] for row in rows) == list(range(64))
    assert joined[0] != joined[4]


def test_every_seed_is_scored_as_if_alone(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec
) -> None:
    def scores(seeds: list[int]) -> list[float]:
        found = evaluate_trained_cell(
            encoder,
            control("toeplitz", LAYERS, 12, SLOTS),
            HEADS,
            corpus,
            task,
            seeds,
            execution=ExecutionSpec(),
        )
        assert [scored.seed for scored in found] == seeds
        return [scored.score for scored in found]

    both = scores([0, 1])
    assert scores([1]) == both[1:]
    assert all(score > 0.5 for score in both)


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
