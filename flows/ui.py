"""Prefect's and MLflow's pages on a store, until Ctrl-C; runs on the store use this Prefect server meanwhile."""

from __future__ import annotations

import atexit
import http.client
import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rich.console import Console

from flows.processes import FLOW
from flows.served import HOST, Served
from flows.server import found_by_runs, running_server, start_own_server
from papa.errors import PapaError
from papa.processes import Process
from papa.study.locks import running
from papa.study.store import Store
from tasks.mlflow_client import connect, database_of, tracking_address, tracking_errors, without_password
from tasks.track import curves_of, run_links

_PREFECT_PORT, _MLFLOW_PORT = 4200, 5000
_PATIENCE_SECONDS = 30.0
_RUNS_SHOWN = 200
"""The API gives no more at once."""
_LOOK_SECONDS = 1.0


def show_pages(store: Store, console: Console) -> None:
    """Serve both pages and print the links until Ctrl-C; while a study uses the server, until the second one.

    Args:
        store: made, with the environment prepared for it.
        console: where links are printed.

    Raises:
        PapaError: the pages of the store are served already, or a server does not start.
    """
    _end_as_interrupted()
    if os.environ.get("PREFECT_API_URL"):
        raise PapaError(
            f"PREFECT_API_URL names a server ({without_password(os.environ['PREFECT_API_URL'])}), and its pages are "
            "there: unset it to see the runs in the store"
        )
    port = running_server(store)
    if port is not None:
        raise PapaError(f"papa ui runs on {store.root} already: open http://{HOST}:{port}")
    server = start_own_server(store, pages=True, port=_PREFECT_PORT)
    tracking = _serve_mlflow(store)
    server.wait()
    with found_by_runs(store, server):
        _show_links(server.address, tracking, tracking_address(store), console)
        _wait(store, console)
    # The servers are ended as this process exits; a further Ctrl-C must not leave one behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_as_interrupted() -> None:
    """A shell's ``kill`` ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _serve_mlflow(store: Store) -> str:
    """The address of MLflow's pages: of the server that keeps the runs, else of a new one on the SQLite file."""
    tracking = tracking_address(store)
    if database_of(tracking) is None:
        return without_password(tracking)
    connect(tracking)
    environment = {"PAPA_MLFLOW_RUNS": tracking, "PAPA_MLFLOW_FILES": store.mlflow_artifacts.as_uri()}
    log = store.root / "mlflow-server.log"
    served = Served(f"{__name__}:_mlflow", log, environment, "/health", port=_MLFLOW_PORT)
    atexit.register(served.end)
    if not served.answers():
        raise PapaError(f"MLflow's server did not start: {served.log} says why")
    return served.address


def _mlflow(address: str) -> Any:
    """MLflow's application; its own command would start it in several processes and run jobs beside it."""
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR, REGISTRY_STORE_URI_ENV_VAR

    tracking = os.environ["PAPA_MLFLOW_RUNS"]
    os.environ[BACKEND_STORE_URI_ENV_VAR] = os.environ[REGISTRY_STORE_URI_ENV_VAR] = tracking
    os.environ[ARTIFACT_ROOT_ENV_VAR] = os.environ["PAPA_MLFLOW_FILES"]
    from mlflow.server.fastapi_app import app

    return app


def _show_links(prefect: str, mlflow: str, tracking: str, console: Console) -> None:
    """Where both pages are, and of each study its last run and its scores."""

    def line(*words: str) -> None:
        console.print(*words, soft_wrap=True, highlight=False, markup=False)

    pages = f"{prefect}{_base_of_pages(prefect)}"
    line(f"Prefect  {pages}/runs")
    line(f"MLflow   {mlflow}/#/experiments")
    runs, scores = _last_runs(prefect), _scores(mlflow, tracking)
    for study in dict.fromkeys([*runs, *scores]):
        line(f"\n{study}")
        if study in runs:
            line(f"  last run  {pages}/runs/flow-run/{runs[study]}")
        if study in scores:
            line(f"  scores    {scores[study]}")
    line("\nCtrl-C ends both.")


def _base_of_pages(prefect: str) -> str:
    """Where on its server Prefect serves the pages that it shows first; it has an older and a newer version of them."""
    settings = _ask(prefect, "GET", "/ui-settings")
    return settings[f"{settings['default_ui']}_base_url"].rstrip("/")


def _last_runs(prefect: str) -> Mapping[str, str]:
    """The id of each study's last flow run, by the study's name."""
    wanted = {"sort": "START_TIME_DESC", "limit": _RUNS_SHOWN, "flows": {"name": {"any_": [FLOW]}}}
    return {run["name"]: run["id"] for run in reversed(_ask(prefect, "POST", "/api/flow_runs/filter", wanted))}


def _ask(prefect: str, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection(prefect.removeprefix("http://"), timeout=_PATIENCE_SECONDS)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _scores(mlflow: str, tracking: str) -> Mapping[str, str]:
    """The page of each study's charts in MLflow."""
    client = connect(tracking)
    links: dict[str, str] = {}
    with tracking_errors(tracking):
        for one in client.search_experiments():
            if one.tags.get("mlflow.note.content"):
                number = one.experiment_id
                found = {"experiment": one.name, "experiment_id": number, "curves": curves_of(client, number)}
                links |= run_links({"address": mlflow, "parents": {}, **found})
    return links


def _wait(store: Store, console: Console) -> None:
    """Until Ctrl-C; where a study runs meanwhile, until it has ended or Ctrl-C is pressed again."""
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)
    if not _studies(store):
        return
    console.print("a study runs here and needs the server: this ends with it, or at once with Ctrl-C", soft_wrap=True)
    with suppress(KeyboardInterrupt):
        while _studies(store):
            time.sleep(_LOOK_SECONDS)


def _studies(store: Store) -> list[str]:
    """The processes on this machine that use the store."""
    known = {text: Process.parse(text) for text in running(store)}
    return [text for text, process in known.items() if process is not None and process.here and not process.gone]
