"""A study on a schedule: Prefect fires it, a worker runs it on two hosts, MLflow and the store keep
what it found.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.flows.history import ask
from tests.flows.processes import PATIENCE_SECONDS, wait_until
from tests.integration.s3 import S3Server
from tests.integration.service import SCRIPTS, Service, run
from tests.integration.services import prefect_worker
from tests.integration.studies import reviews
from tests.tasks.tracked import logged


def finished(prefect: Service, deployment: str) -> list[dict[str, Any]]:
    """A deployment's finished runs that a schedule started, in their order; other tests start some
    by hand.
    """
    states = {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}
    return ask(
        prefect.environment,
        "flow_runs/filter",
        deployments={"name": {"any_": [deployment]}},
        flow_runs={"state": states, "tags": {"all_": ["auto-scheduled"]}},
        sort="START_TIME_ASC",
    )


@pytest.fixture
def study(place: Path) -> Path:
    written = place / "scheduled.yaml"
    written.write_text(reviews("scheduled", 128, 2, [1, 0]))
    return written


def test_a_schedule_fires_by_itself_and_its_second_run_reuses_everything(
    place: Path,
    study: Path,
    prefect: Service,
    tracking: Service,
    storage: S3Server,
    head: Service,
    node: Service,
    site: dict[str, str],
) -> None:
    run([SCRIPTS / "deploy.sh"], prefect.environment)
    deploy = ["prefect", "--no-prompt", "deploy", "--prefect-file", "infra/prefect.yaml"]
    named = ["--name", "demo", "--param", f"study={json.dumps(str(study))}"]
    environment = {**site, **prefect.environment, **tracking.environment, **head.environment}
    with prefect_worker(place / "worker", environment) as worker:
        run([*deploy, *named, "--cron", "* * * * *"], prefect.environment)
        wait_until(
            lambda: len(finished(prefect, "demo")) >= 2,
            PATIENCE_SECONDS,
            f"two runs: {worker.log}",
            worker.process,
        )
    first, second = finished(prefect, "demo")[:2]
    assert [one["state_type"] for one in (first, second)] == ["COMPLETED", "COMPLETED"], (
        worker.log.read_text()[-5000:]
    )
    assert all(one["auto_scheduled"] for one in (first, second))

    steps = {
        one["id"]: ask(
            prefect.environment, "task_runs/filter", flow_runs={"id": {"any_": [one["id"]]}}
        )
        for one in (first, second)
    }
    assert {step["state_name"] for step in steps[first["id"]]} == {"Completed"}
    assert {step["state_name"] for step in steps[second["id"]]} == {"Cached"}
    assert len(steps[first["id"]]) == len(steps[second["id"]])

    # A study this small may end before the other host's worker is up; test_cluster.py shows that
    # host at work.
    assert logged_runs(tracking, "scheduled") == {"study": 1, "curve": 1, "cell": 2}
    keys = storage.files.find("papa")
    assert any(re.match(r"papa/store/artifacts/.*/metadata\.json", key) for key in keys)
    assert any(re.match(r"papa/mlflow/.*/report\.html", key) for key in keys)


def logged_runs(tracking: Service, experiment: str) -> dict[str, int]:
    """How many finished runs of each role MLflow's server keeps."""
    with patch.dict(os.environ, tracking.environment):
        runs = logged(tracking.environment["MLFLOW_TRACKING_URI"], experiment)
    return runs.query("status == 'FINISHED'")["role"].value_counts().to_dict()
