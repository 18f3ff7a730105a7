"""A study in MLflow while it runs: what is there when, and how it ends when the study does not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from papa.encoders.reference import EncoderReference
from papa.processes import Process
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from papa.study.store import Store
from tasks.mlflow_live import LiveRuns
from tasks.mlflow_parents import ParentRun
from tasks.mlflow_texts import texts_of
from tests.flows.processes import PATIENCE_SECONDS, wait_until
from tests.reporting.studies import study
from tests.tasks.tracked import MODELS, RESULTS, address_in, assert_whole, log_study, logged, scored_cells

pytestmark = pytest.mark.usefixtures("mlflow_database")

STUDY = study(RESULTS).model_copy(update={"name": "live"})
PARENTS = [
    ParentRun(
        model,
        EncoderReference(model, None, "/folder", f"digest of {model}", "words", "bert", 6, 12, 384, 512),
        STUDY.tasks[0],
        texts_of(STUDY, STUDY.tasks[0], lambda _: "fingerprint", ranked=True),
    )
    for model in MODELS
]
HALF, EIGHTH = (Cell(MODELS[0], "reviews", "average", "lambda", fraction) for fraction in (0.5, 0.125))
KILLED = replace(Process.this(), started=1)


@contextmanager
def live(place: Path, driver: Process | None = None) -> Iterator[LiveRuns]:
    """Live runs on the database in ``place``, once they are there."""
    opened, said = threading.Event(), list[str]()
    runs = LiveRuns(
        address_in(place),
        Store(place),
        STUDY,
        {parent: [f"rank · {parent.name}"] for parent in PARENTS},
        {"half": [(HALF, 0)], "eighth": [(EIGHTH, 0)]},
        "track",
        driver=driver or Process.this(),
        opened=lambda _: opened.set(),
        failed=said.append,
    )
    with runs:
        runs.begin()
        assert opened.wait(PATIENCE_SECONDS), said
        yield runs
    assert not said


def scores_of(place: Path, cell: Cell) -> ArtifactReference:
    """The artifact that scores a cell of the made-up results."""
    Store(place).make()
    cells = scored_cells(Store(place), "live", RESULTS[RESULTS["encoder"] == MODELS[0]])
    return next(one.scores[0] for one in cells if one.cell == cell)


def runs_in(place: Path, role: str) -> list[dict[str, Any]]:
    return [run for run in logged(address_in(place), "live").to_dict("records") if run["role"] == role]


def test_runs_and_losses_are_there_while_it_runs(tmp_path: Path) -> None:
    with live(tmp_path) as runs:
        parents = runs_in(tmp_path, "parent")
        assert {run["params"]["model"]: run["status"] for run in parents} == dict.fromkeys(MODELS, "RUNNING")
        assert not runs_in(tmp_path, "cell")
        runs.epoch(f"rank · {PARENTS[0].name}", 1, {0: 0.75})
        runs.share(0.25)
        runs.started("half")
        for epoch, loss in enumerate((0.5, 0.25), 1):
            runs.epoch("half", epoch, {0: loss})
        wait_until(
            lambda: [run["metrics"].get("train_loss") for run in runs_in(tmp_path, "cell")] == [0.25],
            PATIENCE_SECONDS,
            "the losses of the probe",
        )
        (cell,) = runs_in(tmp_path, "cell")
        assert (cell["status"], cell["tags"]["fraction"], cell["tags"]["seed"]) == ("RUNNING", "0.5", "0")
        (first,) = (run for run in runs_in(tmp_path, "parent") if run["params"]["model"] == MODELS[0])
        assert cell["parent"] == first["id"]
        assert first["metrics"]["lambda/seed_0/train_loss"] == 0.75
        assert first["metrics"]["progress"] == 0.25
        runs.finished("half", scores_of(tmp_path, HALF))
        runs.enters("track")
        (cell,) = runs_in(tmp_path, "cell")
        assert cell["status"] == "FINISHED"
        before = cell["id"]
        log_study("live", Store(tmp_path), address_in(tmp_path))
        runs.finished("track", scores_of(tmp_path, HALF))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    (half,) = found[found["id"] == before].to_dict("records")
    assert half["key"], "its run became the run of the scored cell"
    assert half["metrics"]["train_loss"] == 0.25


def test_a_study_that_fails_leaves_nothing_running(tmp_path: Path) -> None:
    def fail() -> None:
        with live(tmp_path) as runs:
            runs.started("half")
            runs.started("eighth")
            runs.failed("half")
            raise ValueError("a step failed")

    with pytest.raises(ValueError, match="a step failed"):
        fail()
    assert {run["status"] for run in runs_in(tmp_path, "parent")} == {"FAILED"}
    states = {run["tags"]["fraction"]: run["status"] for run in runs_in(tmp_path, "cell")}
    assert states == {"0.5": "FAILED", "0.125": "KILLED"}


def test_a_study_that_is_interrupted_is_killed(tmp_path: Path) -> None:
    with live(tmp_path) as runs:
        runs.started("half")
        wait_until(lambda: runs_in(tmp_path, "cell"), PATIENCE_SECONDS, "the run of a cell")
        runs.interrupted()
        for role in ("parent", "cell"):
            assert {run["status"] for run in runs_in(tmp_path, role)} == {"KILLED"}
        # The process would have ended by now.
        runs._open.clear()


def test_the_next_run_closes_what_a_killed_one_left_and_goes_on_with_it(tmp_path: Path) -> None:
    with live(tmp_path, KILLED) as killed:
        killed.started("half")
        killed.started("eighth")
        killed.epoch("half", 1, {0: 0.5})
        killed.enters("track")
        # As a process that is gone leaves them: nothing is closed.
        killed._open.clear()
        left = {run["tags"]["fraction"]: run["id"] for run in runs_in(tmp_path, "cell")}
        assert {run["status"] for run in runs_in(tmp_path, "cell")} == {"RUNNING"}
    with live(tmp_path) as runs:
        assert {run["status"] for run in runs_in(tmp_path, "cell")} == {"KILLED"}
        assert {run["status"] for run in runs_in(tmp_path, "parent")} == {"RUNNING"}
        runs.started("half")
        runs.epoch("half", 1, {0: 0.5})
        runs.finished("half", scores_of(tmp_path, HALF))
        runs.enters("track")
        log_study("live", Store(tmp_path), address_in(tmp_path))
        runs.finished("track", scores_of(tmp_path, HALF))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    assert set(left.values()) <= set(found["id"])
    from mlflow import MlflowClient

    (loss,) = MlflowClient(address_in(tmp_path)).get_metric_history(left["0.5"], "train_loss")
    assert loss.value == 0.5


def test_other_scores_take_the_place_of_a_cells_score(tmp_path: Path) -> None:
    """The score of a live run may be from another artifact, of an older version say: the study's own is shown."""
    with live(tmp_path) as runs:
        runs.started("half")
        runs.finished("half", scores_of(tmp_path, EIGHTH))
        runs.enters("track")
        (stale,) = runs_in(tmp_path, "cell")
        log_study("live", Store(tmp_path), address_in(tmp_path))
        runs.finished("track", scores_of(tmp_path, HALF))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    (half,) = found[found["id"] == stale["id"]].to_dict("records")
    scores = RESULTS[RESULTS["encoder"] == MODELS[0]].set_index("fraction")["score"]
    assert (stale["metrics"]["score"], half["metrics"]["score"]) == pytest.approx((scores[0.125], scores[0.5]))
    assert half["tags"]["papa.scores"] == scores_of(tmp_path, HALF).digest


def test_a_study_that_was_logged_before_stays_as_it_was(tmp_path: Path) -> None:
    """An artifact was lost and is made again; what MLflow has fits still, so its step does not run."""
    log_study("live", Store(tmp_path), address_in(tmp_path))
    before = set(logged(address_in(tmp_path), "live")["id"])
    with live(tmp_path) as runs:
        runs.started("half")
        runs.finished("half", scores_of(tmp_path, HALF))
        runs.finished("track", scores_of(tmp_path, HALF))
    found = logged(address_in(tmp_path), "live")
    assert_whole(found)
    assert set(found["id"]) == before


def test_an_mlflow_that_fails_costs_nothing_but_the_live_runs(tmp_path: Path) -> None:
    said, failed = list[str](), threading.Event()
    runs = LiveRuns(
        "http://127.0.0.1:9",
        Store(tmp_path),
        STUDY,
        {},
        {"half": [(HALF, 0)]},
        "track",
        driver=Process.this(),
        opened=lambda _: None,
        failed=lambda sentence: (said.append(sentence), failed.set())[1],
    )
    with runs:
        runs.begin()
        runs.started("half")
        assert failed.wait(PATIENCE_SECONDS)
        runs.epoch("half", 1, {0: 0.5})
        runs.finished("half", scores_of(tmp_path, HALF))
        runs.enters("track")
    assert len(said) == 1
    assert said[0].startswith("MLflow shows the study only when it is over: MLflow at http://127.0.0.1:9 cannot")
