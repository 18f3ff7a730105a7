"""The effect of every head in shards: the same bits for any workers, lost ones, killed runs."""

import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from papa.spec import ExecutionSpec
from papa.spec.file import resolve_study
from papa.storage.artifacts import METADATA, SHARDS, read_metadata, verified
from papa.storage.store import Store
from papa.tasks import sweep
from papa.tasks.head_scores import SCORES
from papa.tasks.inputs import resolve_inputs
from papa.tasks.joint_effects import EFFECTS
from papa.tasks.pipeline import build_pipeline
from papa.tasks.run import Session, run_here, run_once
from papa.tasks.step import Step, StepGroup, with_inputs
from papa.tasks.worker_calls import WorkerCall
from papa.worker import Worker
from papa.workers import Executor, WorkerPool
from tests.finished import Told, described
from tests.tasks.copier import METRIC, TASK
from tests.workers.parts import losses_of_shard_with_a_kill

pytestmark = pytest.mark.unchecked


def step_of(copier: Path, stage: str) -> Step:
    """The step of a stage in a study of the copying decoder by effect."""
    task = {"metric": METRIC, **TASK}
    document = described(
        copier / "model",
        task,
        substitutes=["zeros"],
        keep=[0.5],
        orders=["effect"],
        ranking_seeds=[0],
    )
    study = resolve_study(document, folder=copier, origin="test")
    steps = build_pipeline(resolve_inputs(study).inputs()).steps
    (step,) = (step for step in steps if step.stage.name == stage)
    return step


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class CountingWorker(Worker):
    """Counts the shards that it has computed, and ends its process or run after so many."""

    def __init__(
        self, ended_after: int | None = None, end: Callable[[], object] = kill_this_process
    ) -> None:
        super().__init__("cpu")
        self.shards = 0
        self.ended_after = ended_after
        self.end = end

    def run(self, function: Callable[..., Any], **options: Any) -> Any:
        result = super().run(function, **options)
        called = options["arguments"].get("function")
        self.shards += called is sweep.losses_of_shard
        if self.shards == self.ended_after:
            self.end()
        return result


def artifact_of(step: Step, executor: Executor, to: Path | str) -> Path:
    """The artifact of a step, computed by the workers of an executor."""
    store = Store(to)
    store.make()
    run_here(with_inputs(step.inputs), store, ExecutionSpec(device="cpu"), Told())
    run_once(StepGroup((step,)), Session(store, executor, ExecutionSpec(), Told()))
    return verified(step.reference(store))


def scores_of(step: Step, executor: Executor, to: Path | str) -> dict[str, np.ndarray]:
    """What a sweep stores, computed by the workers of an executor."""
    return load_file(artifact_of(step, executor, to) / SCORES)


@dataclass(frozen=True)
class Undisturbed:
    """A sweep that nothing disturbed: its step, how many shards it had, and what it stored."""

    step: Step
    shards: int
    scores: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def undisturbed(copier: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    step = step_of(copier, "sweep_heads")
    worker = CountingWorker()
    scores = scores_of(step, worker, tmp_path_factory.mktemp("undisturbed") / "store")
    assert scores["effect"].std() > 0.01, "negative control: heads differ"
    return Undisturbed(step, worker.shards, scores)


def assert_same_bits(scores: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert scores.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(scores[name], values)


def test_the_seconds_of_a_sweep_include_its_shards(
    copier: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    slow = CountingWorker(ended_after=1, end=partial(time.sleep, 1.5))
    artifact_of(undisturbed.step, slow, tmp_path)
    finished = undisturbed.step.reference(Store(tmp_path))
    assert read_metadata(finished.path)["seconds"] > 1.5


@pytest.mark.server
def test_joint_effects_have_the_same_bits_of_one_worker_or_two(
    copier: Path, tmp_path: Path
) -> None:
    step = step_of(copier, "joint_effects")
    here = artifact_of(step, Worker("cpu"), tmp_path / "one")
    with WorkerPool(2, "cpu") as pool:
        there = artifact_of(step, pool, tmp_path / "two")
    assert (here / EFFECTS).read_bytes() == (there / EFFECTS).read_bytes()


@pytest.mark.server
def test_kills_change_no_bit(
    undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PAPA_TEST_KILLED", str(killed))
    monkeypatch.setattr(sweep, "losses_of_shard", losses_of_shard_with_a_kill)
    with WorkerPool(2, "cpu") as pool:
        scores = scores_of(undisturbed.step, pool, tmp_path / "two")
    assert killed.exists()
    assert_same_bits(scores, undisturbed.scores)


def sweep_and_die(copier: Path, to: Path, shards: int) -> None:
    """Sweep in this process until it is killed after so many shards."""
    scores_of(step_of(copier, "sweep_heads"), CountingWorker(shards), to)


def test_a_killed_run_keeps_its_finished_shards(
    undisturbed: Undisturbed, copier: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    spawn = multiprocessing.get_context("spawn")
    run = spawn.Process(target=sweep_and_die, args=(copier, killed, 3))
    run.start()
    run.join()
    assert run.exitcode == -signal.SIGKILL
    shards = Path(undisturbed.step.folder(Store(killed))) / SHARDS
    finished = sorted(path.parent for path in shards.glob(f"*/{METADATA}"))
    assert len(finished) == 3
    (damaged,) = finished[0].glob(f"*/{sweep.LOSSES}")
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)

    resumed = CountingWorker()
    scores = scores_of(undisturbed.step, resumed, killed)
    assert resumed.shards == undisturbed.shards - 2
    assert_same_bits(scores, undisturbed.scores)
    assert not shards.exists()


def test_an_interrupted_run_keeps_its_finished_shards_behind_a_uri(
    undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    address = f"memory://{uuid.uuid4().hex}"

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scores_of(undisturbed.step, CountingWorker(3, interrupt), address)
    resumed = CountingWorker()
    scores = scores_of(undisturbed.step, resumed, address)
    # A shard that another thread had begun was finished, too.
    assert resumed.shards <= undisturbed.shards - 3
    assert_same_bits(scores, undisturbed.scores)


def test_more_workers_compute_missing_losses_alone() -> None:
    table = sweep.LossTable(np.arange(8), set_count=5)
    batches = [np.arange(4), np.arange(4, 8)]
    sets = [(), *(((0, head),) for head in range(4))]
    first, *others = sweep._shards(batches, sets, 1, table)
    table.add(losses_of(first))
    missing = sweep._shards(batches, sets, 2, table)
    assert sum(shard.size for shard in missing) == sum(shard.size for shard in others)
    for shard in missing:
        table.add(losses_of(shard))
    assert not np.isnan(table.sums).any()


def losses_of(shard: WorkerCall) -> sweep.ShardLosses:
    """Losses that a shard could have."""
    rows = np.concatenate(shard.arguments["batches"])
    sets = np.array(shard.arguments["sets"])
    losses = np.zeros((len(sets), len(rows)))
    return sweep.ShardLosses(rows, sets, losses, np.ones(len(rows), np.int64), 0.0)
