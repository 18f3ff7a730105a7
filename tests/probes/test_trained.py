"""Constant matrices trained with the probe, on real text and trained weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from papa.attention.constants import ConstantMatrices
from papa.attention.controls import toeplitz
from papa.attention.replacement import replaced
from papa.corpora.corpus import TokenizedCorpus, load_corpus, tokenize_corpus
from papa.encoders.encoder import Encoder
from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.probes.evaluate import build_probe
from papa.probes.joint import JointGradients, train_jointly
from papa.probes.trained import evaluate_trained_cell
from papa.progress import silent
from papa.spec import EncoderSpec, ExecutionSpec, FeaturesSpec, LayoutSpec, TaskSpec
from papa.study_file import resolve_study
from tests.probes.conftest import LAYERS

SLOTS = 48
HEADS = [(layer, head) for layer in range(LAYERS) for head in range(12)]


@pytest.fixture(scope="module")
def task() -> TaskSpec:
    entry = {
        "name": "reviews",
        "slots": SLOTS,
        "train_rows": 64,
        "validation_rows": 64,
        "probe": {"epochs": 2, "batch_size": 16, "learning_rate": 1e-3},
    }
    document = {"name": "t", "encoders": [EMBEDDED], "tasks": [entry]}
    return resolve_study(document, folder=Path(), origin="test").tasks[0]


@pytest.fixture(scope="module")
def corpus(task: TaskSpec, tmp_path_factory: pytest.TempPathFactory) -> TokenizedCorpus:
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED))
    folder = tmp_path_factory.mktemp("trained") / "corpus"
    tokenize_corpus(task, LayoutSpec(), load_tokenizer(reference), reference, folder, shard_rows=512)
    return load_corpus(folder)


def test_training_moves_the_matrices_of_constant_heads_alone(
    encoder: Encoder, corpus: TokenizedCorpus, task: TaskSpec
) -> None:
    start = toeplitz(LAYERS, 12, SLOTS)
    matrices = torch.nn.Parameter(start.matrices.clone())
    probe = build_probe(encoder, corpus, task, [0])
    with replaced(encoder, ConstantMatrices(matrices, start.seen, "trained"), HEADS[:30]):
        gradients = JointGradients(encoder, matrices, probe, corpus, dropout=False)
        train_jointly(
            gradients.each,
            gradients.trained,
            corpus,
            spec=task.probe,
            rows=32,
            epochs=1,
            rate=1e-2,
            seed=0,
            on_gpu=False,
            progress=silent,
        )
    moved = (matrices.detach() - start.matrices).abs().amax(dim=(2, 3)).flatten()
    assert bool((moved[:30] > 1e-3).all())
    # AdamW's decay alone touches the heads that keep their own attention.
    assert float(moved[30:].max()) < 1e-3
    assert all(parameter.grad is None for parameter in encoder.model.parameters())


def test_every_seed_is_scored_as_if_alone(encoder: Encoder, corpus: TokenizedCorpus, task: TaskSpec) -> None:
    def scores(seeds: list[int]) -> list[float]:
        found = evaluate_trained_cell(
            encoder,
            toeplitz(LAYERS, 12, SLOTS),
            HEADS,
            corpus,
            task,
            seeds,
            features=FeaturesSpec(),
            execution=ExecutionSpec(),
            scratch=Path(),
        )
        assert [one.seed for one in found] == seeds
        return [one.score for one in found]

    both = scores([0, 3])
    assert scores([3]) == both[1:]
    assert both[0] != both[1]
    assert all(score > 0.5 for score in both)
