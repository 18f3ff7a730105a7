"""The effect of every head in shards: the same bits for any number of workers, one lost or none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
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
from papa.tasks.sweep import _shards
from papa.worker import Executor, Worker
from papa.workers import WorkerPool
from tests.finished import Told, described
from tests.heads.copying import HALF
from tests.tasks import test_decoder
from tests.tasks.test_decoder import METRIC, TASK
from tests.workers.parts import losses_of_shard_with_a_kill

pytestmark = pytest.mark.unchecked
folder = test_decoder.folder
HEAD_SETS: list[tuple[tuple[int, int], ...]] = [(), ((0, 0),), ((0, 1),), ((1, 0),), ((1, 1),)]


def sweep_of(folder: Path) -> Step:
    """The step that computes the effects of the copying decoder's heads."""
    settings: dict[str, Any] = {"substitutes": ["zeros"], "keep": [0.5], "orders": ["effect"]}
    document = described(
        "", {"metric": METRIC, **TASK, "head": "native"}, **settings, ranking_seeds=[0]
    )
    document["encoders"] = [str(folder / "model")]
    study = resolve_study(document, folder=folder, origin="test")
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


def test_the_study_of_the_page_on_sweeps_has_one_sweep(folder: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "sweep.md"
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.S)
    document = {**yaml.safe_load(text), "encoders": [str(folder / "model")]}
    document["tasks"][0]["slots"] = 2 * HALF
    study = resolve_study(document, folder=folder, origin=str(page))
    steps = build_pipeline(resolve_inputs(study).inputs()).steps
    assert [step.stage.name for step in steps].count("sweep_heads") == 1


@pytest.mark.parametrize(("batches", "workers"), [(1, 1), (1, 3), (5, 1), (40, 2)])
def test_shards_divide_batches_and_heads_among_workers(batches: int, workers: int) -> None:
    rows = np.array_split(np.arange(80), batches)
    shards = _shards(rows, HEAD_SETS, workers)
    pairs = [
        (int(row), number)
        for shard in shards
        for batch in shard.arguments["batches"]
        for row in batch
        for number in shard.arguments["sets"]
    ]
    assert sorted(pairs) == [(row, number) for row in range(80) for number in range(5)]
    assert sum(shard.size for shard in shards) == 80 * len(HEAD_SETS)


@pytest.mark.server
def test_two_workers_of_which_one_is_killed_give_the_same_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = sweep_of(folder)
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
