"""A study whose MLflow server is killed in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pandas
import pytest

from papa.storage.store import Store
from papa.tasks.mlflow import Tracking
from tests.finished import finish_study
from tests.flows import conftest as cli
from tests.flows.processes import PATIENCE_SECONDS, wait_until
from tests.integration.services import mlflow_server
from tests.tasks.tracked import assert_whole, log_study, logged_in, steps_of

pytestmark = pytest.mark.faults


def test_a_study_succeeds_without_mlflow_and_the_next_run_writes_what_is_missing(
    shallow: str, tmp_path: Path, prefect: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = cli.known(cli.write_study(tmp_path, cli.SMALL | {"encoders": [shallow]}))
    command = ("run", study, "--store", str(tmp_path / "store"))
    tracking_stores = f"sqlite:///{tmp_path}/served.db", str(tmp_path / "files")
    with mlflow_server(tmp_path / "first", *tracking_stores) as server:
        run_environment = prefect | server.environment
        with cli.start(*command, extra_environment=run_environment) as process:
            before = cli.until(process.stderr, "average · all-MiniLM-L6-v2 · reviews: done")
            server.kill()
            finished = cli.finish(process, before)
    address = server.environment["MLFLOW_TRACKING_URI"]
    assert finished.code == 0, finished.err
    assert len([line for line in cli.words(finished) if address in line]) == 2
    assert "λ ascending" in finished.out
    with mlflow_server(tmp_path / "second", *tracking_stores) as server:
        # The database holds the login as well.
        run_environment["MLFLOW_TRACKING_URI"] = server.environment["MLFLOW_TRACKING_URI"]
        second_run = cli.papa(*command, extra_environment=run_environment)
        assert second_run.code == 0, second_run.err
        assert ": started" not in second_run.err
        for name in server.environment:
            monkeypatch.setenv(name, run_environment[name])
        runs = logged_in(run_environment["MLFLOW_TRACKING_URI"], "small")
    results = pandas.read_parquet(tmp_path / "store" / "studies" / "small" / "results.parquet")
    assert set(runs["status"]) == {"FINISHED"}
    assert runs["role"].value_counts().to_dict() == {"study": 1, "cell": len(results), "curve": 2}


def test_no_step_waits_for_mlflow_and_the_next_run_writes_what_is_missing(
    shallow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server stands still, then is killed; a step that asked it would wait for half an hour."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", str(PATIENCE_SECONDS))
    study = cli.write_study(tmp_path, cli.TINY | {"encoders": [shallow]})
    store = Store(tmp_path / "store")
    finish_study(study, store.root)
    spec, steps = steps_of(study)
    first, *other_steps = (step for step in steps.steps if step.stage.name == "probe")
    tracking_stores = f"sqlite:///{tmp_path}/served.db", str(tmp_path / "files")
    warnings: list[str] = []

    with mlflow_server(tmp_path / "first", *tracking_stores) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        address = server.environment["MLFLOW_TRACKING_URI"]
        with Tracking(store, spec, steps, warnings.append) as tracking:
            tracking.step(first)
            wait_until(lambda: any(logged_in(address, "small")["role"] == "cell"), "a cell")
            for process in server.processes:
                os.kill(process, signal.SIGSTOP)
            for step in other_steps:
                tracking.step(step)
            tracking.results(steps.steps[-1].reference(store))
            assert not warnings
            server.kill()
    assert len(warnings) == 2, "as it failed, and when the study was over"
    assert all(address in sentence for sentence in warnings)
    with mlflow_server(tmp_path / "second", *tracking_stores) as server:
        # The database holds the login as well.
        address = server.environment["MLFLOW_TRACKING_URI"]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert log_study(study, store) == []
        assert_whole(store, logged_in(address, "small"))
