"""Scores as the stages ``probe`` and ``baseline`` publish them, computed in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.attention.constants import control
from papa.corpora.corpus import load_corpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import evaluate_cell
from papa.spec import ExecutionSpec, FeaturesSpec
from papa.storage.artifacts import read_metadata, reference
from papa.storage.store import Store
from papa.study.stages.constants import Constants
from papa.study.stages.probe import (
    ConstantHeads,
    ProbeScores,
    probe,
    read_examples,
    read_scores,
)
from papa.study.step import Step
from tests.study import minilm as here

SEEDS, HEADS = (0, 1), ((0, 0), (0, 1))


@pytest.fixture(scope="module")
def step() -> Step:
    trained = {"epochs": 1, "learning_rate": 1e-3}
    corpus = here.reviews(train_rows=16, validation_rows=8, probe=trained)
    heads = ConstantHeads((6, 12), Constants("toeplitz"), "first_to_last", 2)
    asked = corpus["task"], False, SEEDS, FeaturesSpec()
    return probe("p", here.encoder(), corpus, heads, *asked)


def computed(step: Step, encoder: Encoder, folder: Path) -> str:
    """The address of the step's artifact, computed as on a worker."""
    store = here.with_inputs(step, folder)
    here.computed(step, store, encoder)
    assert step.is_complete(store)
    assert not list(store.scratch.iterdir()), "features are removed"
    return step.folder(store)


def test_scores_and_metadata_agree(step: Step, minilm: Encoder, tmp_path: Path) -> None:
    folder = computed(step, minilm, tmp_path / "store")
    found, metadata = read_scores(reference(folder)), read_metadata(folder)
    assert [scored.seed for scored in found.scores] == [0, 1]
    assert (found.constant_heads, found.heads, found.unseen_share) == (HEADS, 72, 0.0)
    assert (found.positive, found.device) == (None, "cpu")
    assert 0 < found.seconds == metadata["seconds"]
    assert (metadata["stage"], metadata["key"]) == ("probe", step.key)
    assert read_examples(reference(folder)).mean(axis=1)[:, 0].tolist() == pytest.approx(
        [scored.score for scored in found.scores]
    )


def test_constants_may_be_trained_or_absent(step: Step, minilm: Encoder, tmp_path: Path) -> None:
    def scores(**changes: object) -> ProbeScores:
        return read_scores(reference(computed(step.changed(**changes), minilm, tmp_path / "store")))

    trained = scores(trained=True)
    expected = evaluate_cell(
        minilm,
        load_corpus(step["corpus"].reference(Store(tmp_path / "store")).folder),
        step["task"],
        SEEDS,
        constants=control("toeplitz", 6, 12, 32),
        heads=sorted(HEADS),
        trained=True,
        features=FeaturesSpec(),
        execution=ExecutionSpec(),
        scratch=tmp_path,
    )
    assert [scored.score for scored in trained.scores] == [scored.score for scored in expected]
    assert trained.unseen_share is None
    assert len(trained.constant_heads) == 2
    without = scores(heads=ConstantHeads((6, 12)))
    assert (without.constant_heads, without.unseen_share) == ((), None)
