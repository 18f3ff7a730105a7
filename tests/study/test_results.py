"""The results table from finished cells and baselines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from safetensors.numpy import save_file

from papa.scores.metrics import influence
from papa.scores.summary import summarise
from papa.spec import Order
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference, published, reference
from papa.study.results import results_table
from tests.tasks.tracked import steps_of

ROWS = 80


def cell(
    folder: Path, seeds: tuple[int, ...], right: float, constant_heads: int
) -> tuple[ArtifactReference, np.ndarray]:
    """A finished cell: about the share ``right`` of its examples is answered correctly."""
    correct = np.random.default_rng((constant_heads, *seeds)).random((len(seeds), ROWS)) < right
    examples = np.stack([correct.astype(float), np.ones(correct.shape)], axis=-1)
    document = {
        "scores": [
            {"seed": seed, "score": float(own.mean()), "seconds": 1.0}
            for seed, own in zip(seeds, correct, strict=True)
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


def baseline(folder: Path, document: dict[str, Any]) -> None:
    examples = np.stack([np.arange(ROWS) % 2.0, np.ones(ROWS)], axis=-1)
    with published(folder, {}) as scratch:
        (scratch / "baseline.json").write_text(json.dumps(document))
        both = {
            "always_one_answer": examples,
            "word_embeddings": np.stack([examples, examples[::-1]]),
        }
        save_file(both, scratch / "examples.safetensors")


def table(
    cells: list[tuple[Order, float, tuple[ArtifactReference, ...]]], baseline: Path
) -> pandas.DataFrame:
    """The results of cells whose scores lie in these artifacts, as if steps had made them."""
    (part, _) = steps_of("s")[1].parts
    assert part.baseline is not None
    artifacts = dict.fromkeys(artifact for *_, scores in cells for artifact in scores)
    probes = dict.fromkeys(step for steps in part.cells.values() for step in steps)
    assert len(probes) >= len(artifacts)
    steps = dict(zip(artifacts, probes, strict=False))
    of_cells = {
        Cell(*part.pair, "average", order, fraction): tuple(steps[one] for one in scores)
        for order, fraction, scores in cells
    }
    part = replace(part, cells=of_cells)
    found = {step: artifact for artifact, step in steps.items()}
    return results_table([part], found | {part.baseline: reference(baseline)})


def test_a_cell_has_the_scores_of_all_its_seeds_and_its_own_baselines(tmp_path: Path) -> None:
    full, full_examples = cell(tmp_path / "full", (0, 1), 0.9, 0)
    # One artifact serves both seeds, or each seed has one of its own.
    half, half_examples = cell(tmp_path / "half", (0, 1), 0.7, 36)
    alone = [cell(tmp_path / f"alone-{seed}", (seed,), 0.8, 68) for seed in (0, 1)]
    document = {
        "always_one_answer": {"score": 0.55, "answer": "negative"},
        "word_embeddings": [
            {"seed": seed, "score": 0.6 + seed / 10, "seconds": 1.0} for seed in (1, 0)
        ],
        "seconds": 2.0,
    }
    baseline(tmp_path / "baseline", document)
    cells = [
        ("lambda", 1.0, (full,)),
        ("random", 1.0, (full,)),
        ("lambda", 0.5, (half,)),
        ("random", 0.0625, tuple(one for one, _ in alone)),
    ]
    frame = table(cells, tmp_path / "baseline")
    assert len(frame) == 2 + 2 + 2 + 2
    shared = frame[frame["fraction"] == 1].drop(columns="order")
    assert len(shared) == 4, "cells that share a result have rows of their own"
    assert (
        len(shared.drop(columns=[name for name in shared if "influence" in name]).drop_duplicates())
        == 2
    )
    assert set(frame["heads"]) == {72}
    assert set(frame["one_answer"]) == {"negative"}
    assert frame.groupby("seed")["word_embeddings"].unique().map(list).to_dict() == {
        0: [0.6],
        1: [0.7],
    }
    together = np.concatenate([examples for _, examples in alone])
    for fraction, examples in ((1.0, full_examples), (0.5, half_examples), (0.0625, together)):
        for row in frame[frame["fraction"] == fraction].to_dict("records"):
            np.testing.assert_allclose(
                row["influence"], influence("accuracy", examples[row["seed"]]), atol=1e-6
            )
    summary = summarise(frame).set_index(["order", "fraction"])
    assert summary["low"].lt(summary["mean"]).all()
    assert summary.loc[("lambda", 1.0), "reason"] == "does not beat word embeddings alone", (
        "two seeds of 80 rows"
    )
    frame.to_parquet(tmp_path / "results.parquet", index=False)
    read = summarise(pandas.read_parquet(tmp_path / "results.parquet")).set_index(
        ["order", "fraction"]
    )
    pandas.testing.assert_frame_equal(read, summary, check_exact=True)
