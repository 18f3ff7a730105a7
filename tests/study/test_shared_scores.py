"""Scores of heads in several calls: the bits of one call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

from papa.encoders.encoder import load_encoder
from papa.progress import ignore_progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import read_metadata, remove
from papa.study import score_heads
from papa.study.score_heads import ScoreHeads, read_head_scores
from papa.study.step import compute_step
from papa.study.store import Store
from papa.workers.group import WorkerGroup
from tests.finished import score_study
from tests.study.test_planted_orders import planted_study

pytestmark = pytest.mark.unchecked

ORDERS = ["shapley", "greedy", "effect"]


def scores_of(step: ScoreHeads, store: Store) -> Float[np.ndarray, "layers heads"]:
    return read_head_scores(step.methods[0], {0: step.reference(store)}).mean


def finished(
    folder: Path, head: str, *, rows: int = 16
) -> tuple[Store, dict[ScoreHeads, np.ndarray]]:
    """A study that ran in this process, whose heads were scored in one call for each order."""
    document = planted_study(folder, {"head": head}, ORDERS)
    document["ranking"] |= {"evaluations": 22, "rows": rows}
    steps, store, table, _ = score_study(document, folder, folder / "store")
    assert {*ORDERS} <= {*table["order"]}
    scoring = [step for step in steps.steps if isinstance(step, ScoreHeads)]
    return store, {step: scores_of(step, store) for step in scoring}


def call(step: ScoreHeads, store: Store) -> ScoreHeads | None:
    """A call of a worker alone, in this process: the step of the next."""
    encoder = load_encoder(step.encoder)
    found = compute_step(
        step=step,
        store=store,
        execution=ExecutionSpec(),
        progress=ignore_progress,
        encoder=encoder,
        group=WorkerGroup(encoder),
    )
    assert found is None or isinstance(found, ScoreHeads)
    return found


@pytest.mark.parametrize("head", ["probe", "own"])
def test_scores_in_calls_are_those_of_one_call(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_heads, "_FEWEST", 4)
    store, alone = finished(tmp_path, head)
    for step, expected in alone.items():
        whole = read_metadata(step.folder(store))
        remove(step.folder(store))
        left: ScoreHeads | None = replace(step, flops=1e18)
        calls = 0
        while left:
            calls, before, left = calls + 1, left, call(left, store)
            assert left is None or len(left.values) == len(left.work) * 4 == calls * 4
        found = read_metadata(step.folder(store))
        assert found["evaluations"] == whole["evaluations"]
        assert calls == -(-found["evaluations"][step.methods[0]] // 4) > 1
        assert found["worker_seconds"] > sum(work["worker_seconds"] for work in before.work) > 0
        np.testing.assert_array_equal(scores_of(step, store), expected)
        # What earlier calls found is what counts.
        remove(step.folder(store))
        assert call(replace(before, values=before.values[::-1]), store) is None
        assert not np.array_equal(scores_of(step, store), expected)
