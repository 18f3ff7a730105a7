"""A study whose MLflow server is killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from tests.flows import conftest as cli
from tests.integration.services import mlflow_server
from tests.tasks.tracked import logged_in

pytestmark = pytest.mark.faults


def test_a_study_outlives_mlflow(
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
