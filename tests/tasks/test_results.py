"""The results table from finished cells and baselines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from papa.scores.intervals import over_examples
from papa.spec import Order
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference, published, reference
from tasks.results import ScoredCell, results_table

ROWS = 80


def cell(
    folder: Path, seeds: tuple[int, ...], right: float, constant_heads: int
) -> tuple[ArtifactReference, np.ndarray]:
    """A finished cell: about the share ``right`` of its examples is answered correctly."""
    correct = np.random.default_rng((constant_heads, *seeds)).random((len(seeds), ROWS)) < right
    examples = np.stack([correct.astype(float), np.ones(correct.shape)], axis=-1)
    document = {
        "scores": [
            {"seed": seed, "score": float(own.mean()), "seconds": 1.0} for seed, own in zip(seeds, correct, strict=True)
        ],
        "positive": None,
        "unseen_share": None,
        "constant_heads": [[0, head] for head in range(constant_heads)],
        "heads": 72,
        "seconds": 2.0,
        "device": "cpu",
    }
    with published(folder, {}) as scratch:
        (scratch / "scores.json").write_text(json.dumps(document))
        save_file({"examples": examples}, scratch / "examples.safetensors")
    return reference(folder), examples


def scored(order: Order, fraction: float, *scores: ArtifactReference) -> ScoredCell:
    return ScoredCell(Cell("model", "task", "average", order, fraction), "accuracy", scores)


def test_a_cell_has_the_intervals_of_all_its_seeds_and_its_own_baselines(tmp_path: Path) -> None:
    full, full_examples = cell(tmp_path / "full", (0, 1), 0.9, 0)
    # One artifact serves both seeds, or each seed has one of its own.
    half, half_examples = cell(tmp_path / "half", (0, 1), 0.7, 36)
    alone = [cell(tmp_path / f"alone-{seed}", (seed,), 0.8, 68) for seed in (0, 1)]
    document = {
        "always_one_answer": {"score": 0.55, "answer": "negative"},
        "word_embeddings": [{"seed": seed, "score": 0.6 + seed / 10, "seconds": 1.0} for seed in (1, 0)],
        "seconds": 2.0,
    }
    with published(tmp_path / "baseline", {}) as scratch:
        (scratch / "baseline.json").write_text(json.dumps(document))
    cells = [
        scored("lambda", 1.0, full),
        scored("random", 1.0, full),
        scored("lambda", 0.5, half),
        scored("random", 0.0625, *(one for one, _ in alone)),
    ]
    frame = results_table(cells, {("model", "task"): reference(tmp_path / "baseline")})
    assert len(frame) == 2 + 2 + 2 + 2
    shared = frame[frame["fraction"] == 1].drop(columns="order")
    assert len(shared) == 4, "cells that share a result have rows of their own"
    assert len(shared.drop_duplicates()) == 2
    assert set(frame["heads"]) == {72}
    assert set(frame["one_answer"]) == {"negative"}
    assert frame.groupby("seed")["word_embeddings"].unique().map(list).to_dict() == {0: [0.6], 1: [0.7]}
    together = np.concatenate([examples for _, examples in alone])
    expected = over_examples("accuracy", [full_examples, half_examples, together], 0)
    for fraction, one in zip((1.0, 0.5, 0.0625), expected, strict=True):
        rows = frame[frame["fraction"] == fraction]
        for name, ends in (("score", one.score), ("drop", one.drop)):
            for end, value in zip(("low", "high"), ends, strict=True):
                assert rows[f"{name}_examples_{end}"].unique() == pytest.approx([value])


def test_without_the_original_there_is_no_drop_over_examples(tmp_path: Path) -> None:
    found, _ = cell(tmp_path / "cell", (0, 1), 0.8, 72)
    document = {
        "always_one_answer": {"score": 0.0, "answer": None},
        "word_embeddings": [{"seed": seed, "score": 0.6, "seconds": 1.0} for seed in (0, 1)],
        "seconds": 2.0,
    }
    with published(tmp_path / "baseline", {}) as scratch:
        (scratch / "baseline.json").write_text(json.dumps(document))
    frame = results_table([scored("lambda", 0.0, found)], {("model", "task"): reference(tmp_path / "baseline")})
    assert frame["drop_examples_low"].isna().all()
    assert frame["score_examples_low"].lt(frame["score_examples_high"]).all()
    assert set(frame["one_answer"]) == {""}
