"""Prefect as a team runs it: its server, workers, and what happens when one dies."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from papa.flows.dead_runs import automation
from papa.flows.ports import free_port
from tests.flows.conftest import SMALL, artifacts
from tests.flows.history import ask, of_runs
from tests.flows.processes import PATIENCE_SECONDS, wait_until
from tests.integration.service import SCRIPTS, Service, run
from tests.integration.services import postgres, prefect_server, prefect_worker, ray_head
from tests.integration.studies import Findings, findings, papa_run, to_the_end

COMPUTED = ("tokenise", "average", "train_lambda", "probe")
FLOW = {"name": {"any_": ["papa-study"]}}
STUDY = SMALL | {
    "name": "disturbed",
    "tasks": [{**SMALL["tasks"][0], "train_rows": 256, "probe": {"batch_size": 16, "epochs": 6}}],
    "keep": [1, 0.5, 0.25, 0],
}


def flow_runs(prefect: Service) -> list[dict[str, Any]]:
    runs = {"flows": FLOW, "flow_runs": {"name": {"any_": ["disturbed"]}}}
    return ask(prefect.environment, "flow_runs/filter", runs | {"sort": "START_TIME_ASC"})


def wait_for_the_average(store: Path, service: Service) -> None:
    description = f"the average is done: {service.log}"
    wait_until(lambda: artifacts(store, "average"), description, service.process)


@pytest.fixture(scope="module")
def undisturbed(short_folder: Path) -> Findings:
    store = short_folder / "calm-store"
    with papa_run(short_folder / "calm", json.dumps(STUDY), {}, "--store", str(store)) as study:
        to_the_end(study)
    return findings(str(store))


@pytest.fixture
def deployed(prefect: Service) -> Service:
    run([SCRIPTS / "deploy.py"], prefect.environment)
    return prefect


def test_a_run_goes_on_later(short_folder: Path, deployed: Service, undisturbed: Findings) -> None:
    study = short_folder / "disturbed.yaml"
    store = short_folder / "disturbed"
    study.write_text(json.dumps(STUDY))
    fire = ["prefect", "--no-prompt", "deployment", "run", "papa-study/stack:demo"]
    for name, value in (("study", study), ("store", store)):
        fire += ["--param", f"{name}={json.dumps(str(value))}"]
    with prefect_worker(short_folder / "first-worker", deployed.environment) as worker:
        run(fire, deployed.environment)
        wait_for_the_average(store, worker)
        worker.kill()
    before = artifacts(store, *COMPUTED)
    (dead,) = flow_runs(deployed)
    assert dead["state_name"] == "Running", "nobody was left to say that it died"

    def crashed() -> bool:
        return flow_runs(deployed)[0]["state_name"] == "Crashed"

    wait_until(crashed, "its silence is noticed")

    with prefect_worker(short_folder / "second-worker", deployed.environment) as worker:
        run([*fire, "--watch"], deployed.environment)
        log = worker.log.read_text()

    dead, whole = flow_runs(deployed)
    assert (dead["state_name"], whole["state_name"]) == ("Crashed", "Completed"), log
    assert artifacts(store, *COMPUTED).items() >= before.items(), "finished steps are not repeated"
    assert findings(str(store)) == undisturbed

    assert {"papa", "disturbed", "embedded/all-MiniLM-L6-v2", "reviews"} <= set(whole["tags"])
    of_whole = {"flow_run_id": {"any_": [whole["id"]]}}
    logs = ask(deployed.environment, "logs/filter", {"logs": of_whole})
    lines = [log_line["message"] for log_line in logs]
    there = "tokenise · all-MiniLM-L6-v2 · reviews: already there"
    assert any(line.startswith(there) for line in lines)
    shares = [int(share) for line in lines for share in re.findall(r"\| study (\d+)%", line)]
    assert len(set(shares)) > 2, "the log tells how much of the study is done"
    assert min(shares) < max(shares) == 100
    (report,) = ask(deployed.environment, "artifacts/filter", of_runs(whole))
    assert report["key"] == "papa-disturbed-report"
    assert "| Head order " in report["data"]
    assert "](data:image/png;base64," in report["data"]


def test_a_deployed_run_that_fails_says_why(short_folder: Path, deployed: Service) -> None:
    study = short_folder / "daily.yaml"
    fire = ["prefect", "--no-prompt", "deployment", "run", "--watch"]
    study.write_text(json.dumps(SMALL | {"name": "daily"}))
    # Relative to this folder, not to that in which the worker is started.
    deploy = ["papa", "deploy", os.path.relpath(study), "--cron", "0 6 1 1 *", "--store"]
    with prefect_worker(short_folder / "daily-worker", deployed.environment):
        run([*deploy, short_folder / "daily"], deployed.environment)
        run([*fire, "papa-study/daily"], deployed.environment)
        cluster = ["--param", f"ray_address={json.dumps(f'127.0.0.1:{free_port()}')}"]
        run([*deploy, short_folder / "fresh"], deployed.environment)
        with pytest.raises(AssertionError):
            run([*fire, *cluster, "papa-study/daily"], deployed.environment)
    daily_filter = {"name": {"any_": ["daily"]}}
    (deployment,) = ask(deployed.environment, "deployments/filter", {"deployments": daily_filter})
    assert [path["schedule"]["cron"] for path in deployment["schedules"]] == ["0 6 1 1 *"]
    of_it = {"deployment_id": {"any_": [deployment["id"]]}}
    filters = {"flow_runs": of_it, "sort": "START_TIME_ASC"}
    runs = ask(deployed.environment, "flow_runs/filter", filters)
    states = [path["state"] for path in runs if path["state_type"] != "SCHEDULED"]
    assert [state["type"] for state in states] == ["COMPLETED", "FAILED"]
    assert "no Ray cluster answers" in states[1]["message"]
    listed = run(["papa", "list", "--store", short_folder / "fresh"], deployed.environment)
    assert re.search("daily\t.*all-MiniLM-L6-v2\t.*\tfailed: Ray: no Ray cluster answers", listed)
    assert not [path for path in (short_folder / "daily").rglob("*") if path.stat().st_mode & 0o077]


def test_a_deployment_runs_by_itself_on_its_cluster(short_folder: Path) -> None:
    folder = short_folder / "scheduled"
    study = folder / "scheduled.yaml"
    folder.mkdir()
    study.write_text(json.dumps(SMALL | {"name": "scheduled"}))
    with (
        ray_head(folder / "head", cores=2) as head,
        postgres(folder / "database", ["prefect"]) as database,
        prefect_server(folder / "server", database) as server,
    ):
        run(["prefect", "work-pool", "create", "papa", "--type", "process"], server.environment)
        options = ["--cron", "* * * * *", "--workers", "1", "--ray-address"]
        deploy = ["papa", "deploy", study, "--store", folder / "store", *options]
        ray_address = head.environment["RAY_ADDRESS"]
        run([*deploy, ray_address], server.environment)
        (deployment,) = ask(server.environment, "deployments/filter", {})
        assert [entry["schedule"]["cron"] for entry in deployment["schedules"]] == ["* * * * *"]
        automations = ask(server.environment, "automations/filter", {})
        assert [entry["name"] for entry in automations] == [automation().name]

        def finished() -> list[dict[str, Any]]:
            runs = ask(server.environment, "flow_runs/filter", {"sort": "START_TIME_ASC"})
            return [entry for entry in runs if entry["state_name"] == "Completed"]

        environment = {**server.environment, **head.environment}
        environment.pop("RAY_ADDRESS")
        with prefect_worker(folder / "worker", environment) as worker:
            wait_until(finished, f"a run by schedule: {worker.log}", worker.process)
            parameters = finished()[0]["parameters"]
    assert (parameters["workers"], parameters["ray_address"]) == (1, ray_address)
    assert artifacts(folder / "store", "aggregate")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PREFECT_API_URL", "http://127.0.0.1:9/api", "Failed to reach API at http://127.0.0.1:9"),
        ("PREFECT_API_AUTH_STRING", "papa:wrong", "401 Unauthorized"),
        ("MLFLOW_TRACKING_PASSWORD", "wrong", "MLFLOW_TRACKING_PASSWORD"),
    ],
)
def test_a_server_that_cannot_be_used_is_one_sentence(
    prefect: Service, tracking: Service, tmp_path: Path, name: str, value: str, sentence: str
) -> None:
    environment = {**prefect.environment, **tracking.environment, name: value}
    store = tmp_path / "store"
    with papa_run(tmp_path, json.dumps(STUDY), environment, "--store", str(store)) as study:
        study.process.wait(PATIENCE_SECONDS)
    assert study.process.returncode == 1
    *notes, line = study.log.read_text().splitlines()
    # On a slow machine the study says this before it ends.
    assert all("does not answer" in note for note in notes)
    assert line.startswith("error: ")
    assert sentence in line
    assert prefect.environment["PREFECT_API_AUTH_STRING"] not in line
    assert not list(store.glob("artifacts/*"))
