"""The stack's scripts, a schedule, and studies on two hosts that share nothing but the store."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg2
import pytest

from tests.flows.history import ask, of_runs
from tests.flows.processes import descendants, status, wait_until
from tests.integration.service import SCRIPTS, S3Server, Service, run
from tests.integration.services import Postgres, prefect_worker
from tests.integration.studies import Findings, findings, papa_run, reviews, to_the_end
from tests.tasks.tracked import logged_in

TOUCH = (
    "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); "
    "print(sorted({node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']}))"
)


def test_servers_need_a_password(database: Postgres, prefect: Service, tracking: Service) -> None:
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(database.url("postgres"), password="wrong")
    of_prefect = prefect.environment
    of_mlflow = tracking.environment
    flows = f"{of_prefect['PREFECT_API_URL']}/flows/filter"
    question = "api/2.0/mlflow/experiments/search?max_results=1"
    experiments = f"{of_mlflow['MLFLOW_TRACKING_URI']}/{question}"
    login = f"papa:{of_mlflow['MLFLOW_TRACKING_PASSWORD']}"
    prefect_login = of_prefect["PREFECT_API_AUTH_STRING"]
    for address, right, body in ((flows, prefect_login, {}), (experiments, login, None)):
        logins = (None, "papa:wrong", right)
        assert [status(address, credentials, body) for credentials in logins] == [401, 401, 200]


def test_deploying_again_leaves_a_resumed_schedule_active(prefect: Service) -> None:
    run([SCRIPTS / "deploy.py"], prefect.environment)

    def schedule_of_demo() -> dict[str, Any]:
        demo_filter = {"deployments": {"name": {"any_": ["stack:demo"]}}}
        (deployment,) = ask(prefect.environment, "deployments/filter", demo_filter)
        (schedule,) = deployment["schedules"]
        return {**schedule, "deployment": deployment["id"]}

    paused = schedule_of_demo()
    assert not paused["active"], "the control: the file's schedule is paused"
    words = ["prefect", "deployment", "schedule", "resume", "papa-study/stack:demo", paused["id"]]
    run(words, prefect.environment)
    run([SCRIPTS / "deploy.py"], prefect.environment)
    assert schedule_of_demo()["active"]
    words[3] = "pause"
    words[5] = schedule_of_demo()["id"]
    run(words, prefect.environment)


def test_two_hosts_are_one_cluster_for_whoever_has_the_token(head: Service, node: Service) -> None:
    touch = [sys.executable, "-c", TOUCH, head.environment["RAY_ADDRESS"]]
    assert "['10.77.0.1', '10.77.0.2']" in run(touch, head.environment)
    with pytest.raises(AssertionError, match="InvalidAuthToken"):
        run(touch, {**head.environment, "RAY_AUTH_TOKEN": "0" * 64})


def finished(prefect: Service, deployment: str) -> list[dict[str, Any]]:
    """A deployment's finished runs that a schedule started, in their order."""
    states = {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}
    runs = {"state": states, "tags": {"all_": ["auto-scheduled"]}}
    filters = {"deployments": {"name": {"any_": [deployment]}}, "flow_runs": runs}
    return ask(prefect.environment, "flow_runs/filter", filters | {"sort": "START_TIME_ASC"})


@pytest.fixture
def environment(
    site: dict[str, str], prefect: Service, tracking: Service, head: Service
) -> dict[str, str]:
    return {**site, **prefect.environment, **tracking.environment, **head.environment}


@pytest.mark.usefixtures("node")
def test_a_scheduled_run_reuses_everything(
    short_folder: Path,
    environment: dict[str, str],
    prefect: Service,
    tracking: Service,
    storage: S3Server,
) -> None:
    study = short_folder / "scheduled.yaml"
    study.write_text(reviews("scheduled", 128, 2, [1, 0]))
    run([SCRIPTS / "deploy.py"], prefect.environment)
    deploy = ["prefect", "--no-prompt", "deploy", "--prefect-file", "infra/prefect.yaml"]
    arguments = ["--name", "stack:demo", "--param", f"study={json.dumps(str(study))}"]
    with prefect_worker(short_folder / "worker", environment) as worker:
        run([*deploy, *arguments, "--cron", "* * * * *"], prefect.environment)
        two = f"two runs: {worker.log}"
        wait_until(lambda: len(finished(prefect, "stack:demo")) >= 2, two, worker.process)
    runs = finished(prefect, "stack:demo")[:2]
    states = []
    for flow_run in runs:
        outcome = flow_run["state_type"], flow_run["auto_scheduled"]
        assert outcome == ("COMPLETED", True), worker.log
        steps = ask(prefect.environment, "task_runs/filter", of_runs(flow_run))
        states.append([step["state_name"] for step in steps])
    assert {*states[0]} == {"Completed"}
    assert states[1] == ["Cached"] * len(states[0])

    # A study this small may end before the other host's worker is up.
    assert logged_runs(tracking, "scheduled") == {"study": 1, "curve": 1, "cell": 2}
    keys = [*storage.files.find("papa"), *storage.files.find("mlflow")]
    assert any(re.match(r"papa/store/artifacts/.*/metadata\.json", key) for key in keys)
    assert any(re.match(r"mlflow/.*/report\.html", key) for key in keys)


def logged_runs(tracking: Service, experiment: str) -> dict[str, int]:
    with patch.dict(os.environ, tracking.environment):
        runs = logged_in(tracking.environment["MLFLOW_TRACKING_URI"], experiment)
    return runs.query("status == 'FINISHED'")["role"].value_counts().to_dict()


def cell_study(name: str, epochs: int = 3) -> str:
    return reviews(name, 512, epochs, [1, 0.5, 0])


@pytest.fixture(scope="module")
def undisturbed(short_folder: Path) -> Findings:
    store = short_folder / "undisturbed" / "store"
    options = ("--store", str(store), "--workers", "1")
    with papa_run(store.parent, cell_study("alone"), {}, *options) as process:
        to_the_end(process)
    return findings(str(store))


@pytest.mark.parametrize("stage", ["average", "probe"])
def test_a_host_lost_in_the_middle_changes_nothing(
    short_folder: Path,
    stage: str,
    undisturbed: Findings,
    environment: dict[str, str],
    storage: S3Server,
    node: Service,
) -> None:
    store = f"s3://papa/lost-in-{stage}"
    options = ("--ray-address", environment["RAY_ADDRESS"], "--store", store)
    name = f"lost-in-{stage}"
    with papa_run(short_folder / name, cell_study(name), environment, *options) as process:

        def in_the_middle() -> bool:
            log = process.log.read_text()
            begun = {line.partition(":")[0] for line in log.splitlines() if ": started" in line}
            done = {line.partition(":")[0] for line in log.splitlines() if ": done" in line}
            commands = descendants(node.process.pid).values()
            busy = any(command.startswith("ray::Worker.run") for command in commands)
            assert process.process.poll() is None, f"over before its '{stage}' was met:\n{log}"
            return busy and any(name.startswith(f"{stage} ·") for name in begun - done)

        wait_until(in_the_middle, f"the other host works on '{stage}'")
        node.kill()
        to_the_end(process)
    assert findings(store, storage) == undisturbed


@pytest.mark.usefixtures("node")
def test_two_studies_at_once_share_one_store(
    short_folder: Path,
    undisturbed: Findings,
    environment: dict[str, str],
    tracking: Service,
    storage: S3Server,
) -> None:
    store = "s3://papa/shared"
    options = ("--ray-address", environment["RAY_ADDRESS"], "--store", store, "--workers", "1")
    names = ["one-of-two", "other-of-two"]
    with (
        papa_run(short_folder / names[0], cell_study(names[0]), environment, *options) as first_run,
        papa_run(
            short_folder / names[1], cell_study(names[1], epochs=4), environment, *options
        ) as second_run,
    ):
        to_the_end(first_run)
        to_the_end(second_run)
    found_artifacts = findings(store, storage)
    assert found_artifacts.items() >= undisturbed.items()
    stages = sorted(stage for stage, _ in found_artifacts)
    assert stages == ["average", *["probe"] * 6, "tokenise", "train_lambda"]
    for name in names:
        assert logged_runs(tracking, name) == {"study": 1, "curve": 1, "cell": 3}
