"""A study in MLflow while it runs: what is there when, and how it ends when the study does not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from papa.processes import Process
from papa.storage.artifacts import ArtifactReference
from papa.study.probe import Probe
from papa.study.store import Store
from tasks.live import LiveRuns
from tests.flows.processes import PATIENCE_SECONDS, wait_until
from tests.tasks.tracked import (
    MODELS,
    RESULTS,
    address_in,
    assert_whole,
    log_study,
    logged,
    make,
    tracked,
)

pytestmark = pytest.mark.usefixtures("mlflow_database")

TRACK = tracked("live", "sqlite:///elsewhere.db")
FIRST = TRACK.parents[0]
KILLED = replace(Process.this(), started=1)


def probe(fraction: float) -> Probe:
    """The step that scores the first encoder's cell."""
    return next(probes[0] for cell, probes in FIRST.cells.items() if cell.fraction == fraction)


HALF, EIGHTH = probe(0.5).name, probe(0.125).name
RANK, LAST = FIRST.rankings["lambda"][0].name, TRACK.name


def live_runs(place: Path, said: list[str], driver: Process | None = None) -> LiveRuns:
    """Live runs on the database in ``place``, once they are there."""
    opened = threading.Event()
    runs = LiveRuns(
        tracked("live", address_in(place)),
        Store(place),
        driver=driver or Process.this(),
        opened=lambda _: opened.set(),
        failed=said.append,
    )
    runs.begin()
    assert opened.wait(PATIENCE_SECONDS), said
    return runs


@contextmanager
def live(place: Path) -> Iterator[LiveRuns]:
    """A study that is shown while the block runs."""
    said = list[str]()
    with live_runs(place, said) as runs:
        yield runs
    assert not said


def scores_of(place: Path, fraction: float) -> ArtifactReference:
    """The artifact that scores the first encoder's cell."""
    make(TRACK, Store(place))
    return probe(fraction).reference(Store(place))


def runs_in(place: Path, role: str) -> list[dict[str, Any]]:
    return [
        run for run in logged(address_in(place), "live").to_dict("records") if run["role"] == role
    ]


def test_runs_and_losses_are_there_while_it_runs(tmp_path: Path) -> None:
    with live(tmp_path) as runs:
        parents = runs_in(tmp_path, "parent")
        assert {run["params"]["encoder"]: run["status"] for run in parents} == dict.fromkeys(
            MODELS, "RUNNING"
        )
        assert not runs_in(tmp_path, "cell")
        runs.epoch(RANK, 1, {0: 0.75})
        runs.share(0.25)
        runs.started(HALF)
        for epoch, loss in enumerate((0.5, 0.25), 1):
            runs.epoch(HALF, epoch, {0: loss})
        wait_until(
            lambda: (
                [run["metrics"].get("train_loss") for run in runs_in(tmp_path, "cell")] == [0.25]
            ),
            PATIENCE_SECONDS,
            "the losses of the probe",
        )
        (cell,) = runs_in(tmp_path, "cell")
        assert (cell["status"], cell["tags"]["fraction"], cell["tags"]["seed"]) == (
            "RUNNING",
            "0.5",
            "0",
        )
        (first,) = (
            run for run in runs_in(tmp_path, "parent") if run["params"]["encoder"] == MODELS[0]
        )
        assert cell["parent"] == first["id"]
        assert first["metrics"]["lambda/seed_0/train_loss"] == 0.75
        assert first["metrics"]["progress"] == 0.25
        runs.finished(HALF, scores_of(tmp_path, 0.5))
        runs.enters(LAST)
        (cell,) = runs_in(tmp_path, "cell")
        assert cell["status"] == "FINISHED"
        before = cell["id"]
        log_study("live", Store(tmp_path), address_in(tmp_path))
        runs.finished(LAST, scores_of(tmp_path, 0.5))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    (half,) = found[found["id"] == before].to_dict("records")
    assert half["key"], "its run became the run of the scored cell"
    assert half["metrics"]["train_loss"] == 0.25


def test_a_study_that_fails_leaves_nothing_running(tmp_path: Path) -> None:
    def fail() -> None:
        with live(tmp_path) as runs:
            runs.started(HALF)
            runs.started(EIGHTH)
            runs.failed(HALF)
            raise ValueError("a step failed")

    with pytest.raises(ValueError, match="a step failed"):
        fail()
    assert {run["status"] for run in runs_in(tmp_path, "parent")} == {"FAILED"}
    states = {run["tags"]["fraction"]: run["status"] for run in runs_in(tmp_path, "cell")}
    assert states == {"0.5": "FAILED", "0.125": "KILLED"}


def test_a_study_that_is_interrupted_is_killed(tmp_path: Path) -> None:
    with live(tmp_path) as runs:
        runs.started(HALF)
        wait_until(lambda: runs_in(tmp_path, "cell"), PATIENCE_SECONDS, "the run of a cell")
        runs.interrupted()
        for role in ("parent", "cell"):
            assert {run["status"] for run in runs_in(tmp_path, role)} == {"KILLED"}


def test_the_next_run_closes_what_a_killed_one_left_and_goes_on_with_it(tmp_path: Path) -> None:
    killed = live_runs(tmp_path, [], KILLED)
    killed.started(HALF)
    killed.started(EIGHTH)
    killed.epoch(HALF, 1, {0: 0.5})
    # What comes first in it is written; as in a process that is gone, nothing is closed.
    killed.enters(LAST)
    left = {run["tags"]["fraction"]: run["id"] for run in runs_in(tmp_path, "cell")}
    assert {run["status"] for run in runs_in(tmp_path, "cell")} == {"RUNNING"}
    with live(tmp_path) as runs:
        assert {run["status"] for run in runs_in(tmp_path, "cell")} == {"KILLED"}
        assert {run["status"] for run in runs_in(tmp_path, "parent")} == {"RUNNING"}
        runs.started(HALF)
        runs.epoch(HALF, 1, {0: 0.5})
        runs.finished(HALF, scores_of(tmp_path, 0.5))
        runs.enters(LAST)
        log_study("live", Store(tmp_path), address_in(tmp_path))
        runs.finished(LAST, scores_of(tmp_path, 0.5))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    assert set(left.values()) <= set(found["id"])
    from mlflow import MlflowClient

    (loss,) = MlflowClient(address_in(tmp_path)).get_metric_history(left["0.5"], "train_loss")
    assert loss.value == 0.5


def test_two_processes_at_once_leave_one_run_a_key(tmp_path: Path) -> None:
    both = [live_runs(tmp_path, []) for _ in range(2)]
    for one in both:
        one.started(HALF)
        one.enters(LAST)
    assert len(runs_in(tmp_path, "cell")) == 1
    assert len(runs_in(tmp_path, "parent")) == len(MODELS)


def test_other_scores_take_the_place_of_a_cells_score(tmp_path: Path) -> None:
    """The score of a live run may be from another artifact, of an older version say: the study's
    own is shown.
    """
    with live(tmp_path) as runs:
        runs.started(HALF)
        runs.finished(HALF, scores_of(tmp_path, 0.125))
        runs.enters(LAST)
        (stale,) = runs_in(tmp_path, "cell")
        log_study("live", Store(tmp_path), address_in(tmp_path))
        runs.finished(LAST, scores_of(tmp_path, 0.5))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    (half,) = found[found["id"] == stale["id"]].to_dict("records")
    scores = RESULTS[RESULTS["encoder"] == MODELS[0]].set_index("fraction")["score"]
    assert (stale["metrics"]["score"], half["metrics"]["score"]) == pytest.approx(
        (scores[0.125], scores[0.5])
    )
    assert half["tags"]["papa.scores"] == scores_of(tmp_path, 0.5).digest


def test_a_study_that_was_logged_before_stays_as_it_was(tmp_path: Path) -> None:
    """An artifact was lost and is made again; what MLflow has fits still, so its step does
    not run.
    """
    log_study("live", Store(tmp_path), address_in(tmp_path))
    before = set(logged(address_in(tmp_path), "live")["id"])
    with live(tmp_path) as runs:
        runs.started(HALF)
        runs.finished(HALF, scores_of(tmp_path, 0.5))
        runs.finished(LAST, scores_of(tmp_path, 0.5))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    assert set(found["id"]) == before


def test_an_mlflow_that_fails_costs_nothing_but_the_live_runs(tmp_path: Path) -> None:
    said, failed = list[str](), threading.Event()
    runs = LiveRuns(
        tracked("live", "http://127.0.0.1:9"),
        Store(tmp_path),
        driver=Process.this(),
        opened=lambda _: None,
        failed=lambda sentence: (said.append(sentence), failed.set())[1],
    )
    with runs:
        runs.begin()
        runs.started(HALF)
        assert failed.wait(PATIENCE_SECONDS)
        runs.epoch(HALF, 1, {0: 0.5})
        runs.finished(HALF, scores_of(tmp_path, 0.5))
        runs.enters(LAST)
    assert len(said) == 1
    assert said[0].startswith(
        "MLflow shows the study only when it is over: MLflow at http://127.0.0.1:9 cannot"
    )
