"""The effect of every head in shards: the same bits for any number of workers, one lost or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from papa.spec import ExecutionSpec
from papa.spec.file import resolve_study
from papa.storage.artifacts import verified
from papa.storage.store import Store
from papa.tasks import sweep
from papa.tasks.head_scores import SCORES
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline
from papa.tasks.run import Session, run_here, run_once
from papa.tasks.step import Step, StepGroup, with_inputs
from papa.worker import Executor, Worker
from papa.workers import WorkerPool
from tests.finished import Told, described
from tests.tasks.copier import METRIC, TASK
from tests.workers.parts import losses_of_shard_with_a_kill

pytestmark = pytest.mark.unchecked


def sweep_of(copier: Path) -> Step:
    """The step that computes the effects of the copying decoder's heads."""
    settings: dict[str, object] = {"substitutes": ["zeros"], "keep": [0.5], "orders": ["effect"]}
    document = described("", {"metric": METRIC, **TASK}, **settings, ranking_seeds=[0])
    document["encoders"] = [str(copier / "model")]
    study = resolve_study(document, folder=copier, origin="test")
    steps = build_pipeline(resolve_inputs(study).inputs()).steps
    (step,) = (step for step in steps if step.stage.name == "sweep_heads")
    return step


def scores_of(step: Step, executor: Executor, to: Path) -> dict[str, np.ndarray]:
    """What a sweep stores, computed by the workers of an executor."""
    store = Store(to)
    store.make()
    run_here(with_inputs(step.inputs), store, ExecutionSpec(device="cpu"), Told())
    run_once(StepGroup((step,)), Session(store, executor, ExecutionSpec(), Told()))
    return load_file(verified(step.reference(store)) / SCORES)


@pytest.mark.server
def test_a_kill_changes_no_bit(
    copier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = sweep_of(copier)
    expected = scores_of(step, Worker("cpu"), tmp_path / "one")
    killed = tmp_path / "killed"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PAPA_TEST_KILLED", str(killed))
    monkeypatch.setattr(sweep, "losses_of_shard", losses_of_shard_with_a_kill)
    with WorkerPool(2, "cpu") as pool:
        scores = scores_of(step, pool, tmp_path / "two")
    assert killed.exists()
    assert scores.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(scores[name], values)
    assert expected["effect"].std() > 0.01
