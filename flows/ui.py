"""Prefect's and MLflow's pages on a store, until Ctrl-C; runs use this server meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx
from rich.console import Console

from flows.served import HOST, Served
from flows.server import FLOW, OwnServer, found_by_runs, running_server
from flows.terminal import say
from papa.errors import PapaError
from papa.processes import Process
from papa.study.store import Store, running
from tasks.mlflow import connect, database_of, tracking_address, tracking_errors, without_password
from tasks.shown import run_links
from tasks.track import curves_of

_PREFECT_PORT, _MLFLOW_PORT = 4200, 5000
_PAGES = "/v2"
"""Where on its server Prefect has its newer pages, which it shows first."""
_PATIENCE_SECONDS, _LOOK_SECONDS = 30.0, 1.0
_RUNS_SHOWN = 200
"""The API gives no more at once."""


def show_pages(store: Store, console: Console) -> None:
    """Serve both pages and print the links until Ctrl-C; while a study uses the server, until the
    second one.

    The store is made, and the environment prepared for it.
    """
    # A shell's ``kill`` ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if address := os.environ.get("PREFECT_API_URL"):
        raise PapaError(
            f"PREFECT_API_URL names a server ({without_password(address)}), and its pages are "
            "there: unset it to see the runs in the store"
        )
    port = running_server(store)
    if port is not None:
        raise PapaError(f"papa ui runs on {store.root} already: open http://{HOST}:{port}")
    server = OwnServer(store, pages=True, port=_PREFECT_PORT)
    mlflow = _serve_mlflow(store)
    server.wait()
    with found_by_runs(store, server):
        _show_links(server.address, mlflow, tracking_address(store), console)
        _wait(store, console)
    # The servers are ended as this process exits; a further Ctrl-C must not leave one behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _serve_mlflow(store: Store) -> str:
    """The address of MLflow's pages: of the server with the runs, else of a new one on the file."""
    tracking = tracking_address(store)
    if database_of(tracking) is None:
        return without_password(tracking)
    connect(tracking)
    files, log = store.mlflow_artifacts.as_uri(), store.root / "mlflow-server.log"
    environment = {"PAPA_MLFLOW_RUNS": tracking, "PAPA_MLFLOW_FILES": files}
    served = Served("MLflow", f"{__name__}:_mlflow", "/health", log, environment, port=_MLFLOW_PORT)
    served.wait()
    return served.address


def _mlflow(address: str) -> Any:
    """MLflow's application; its own command would start several processes and run jobs."""
    from mlflow.server import constants

    runs, files = os.environ["PAPA_MLFLOW_RUNS"], os.environ["PAPA_MLFLOW_FILES"]
    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = runs
    os.environ[constants.REGISTRY_STORE_URI_ENV_VAR] = runs
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = files
    from mlflow.server.fastapi_app import app

    return app


def _show_links(prefect: str, mlflow: str, tracking: str, console: Console) -> None:
    """Print of each study its scores and its last run, then where both pages are."""
    runs, scores = _last_runs(prefect), _scores(mlflow, tracking)
    for study in dict.fromkeys([*runs, *scores]):
        say(console, study)
        if study in scores:
            say(console, f"  scores    {scores[study]}")
        if study in runs:
            say(console, f"  last run  {prefect}{_PAGES}/runs/flow-run/{runs[study]}")
        say(console, "")
    say(console, f"MLflow   {mlflow}/#/experiments")
    say(console, f"Prefect  {prefect}{_PAGES}/runs")
    say(console, "\nCtrl-C ends both.")


def _last_runs(prefect: str) -> Mapping[str, str]:
    """The id of each study's last flow run, by the study's name."""
    wanted = {"sort": "START_TIME_DESC", "limit": _RUNS_SHOWN, "flows": {"name": {"any_": [FLOW]}}}
    with httpx.Client(timeout=_PATIENCE_SECONDS, trust_env=False) as client:
        runs = client.post(f"{prefect}/api/flow_runs/filter", json=wanted).json()
    return {run["name"]: run["id"] for run in reversed(runs)}


def _scores(mlflow: str, tracking: str) -> Mapping[str, str]:
    """The page of each study's charts in MLflow."""
    client = connect(tracking)
    links: dict[str, str] = {}
    with tracking_errors(tracking):
        for experiment in client.search_experiments():
            if experiment.tags.get("mlflow.note.content"):
                number, name = experiment.experiment_id, experiment.name
                document = {"address": mlflow, "experiment": name, "experiment_id": number}
                curves = curves_of(client, number)
                links |= run_links({**document, "parents": {}, "curves": curves})
    return links


def _wait(store: Store, console: Console) -> None:
    """Until Ctrl-C; where a study runs meanwhile, until it has ended or Ctrl-C is pressed again."""
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)
    if not _studies(store):
        return
    say(
        console, "a study runs here and needs the server: this ends with it, or at once with Ctrl-C"
    )
    with suppress(KeyboardInterrupt):
        while _studies(store):
            time.sleep(_LOOK_SECONDS)


def _studies(store: Store) -> list[Process]:
    """The processes on this machine that use the store."""
    processes = [process for text in running(store) if (process := Process.parse(text))]
    return [process for process in processes if process.here and not process.gone]
