"""``papa ui``: Prefect's and MLflow's pages on loopback, each behind a password."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect as connect_socket

from papa.processes import start_of
from papa.storage.store import Store
from tasks.mlflow import connect
from tests.flows.conftest import start, until
from tests.flows.processes import descendants, is_loopback, listening, status, wait_until
from tests.tasks.tracked import address_in, log_study

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ui") / "store"
    Store(folder).make()
    log_study("shown", Store(folder))
    return folder


@pytest.fixture(scope="module")
def pages(store: Path) -> Iterator[tuple[dict[str, tuple[str, str]], subprocess.Popen[str]]]:
    """Address and password by server; at the end Ctrl-C ends it and all that it started."""
    with start("ui", "--store", str(store)) as process:
        printed = until(process.stdout, "Ctrl-C ends")
        found = re.findall(
            r"^(Prefect|MLflow) +(http://127\.0\.0\.1:\d+) +(papa:\S+)", printed, re.M
        )
        servers = {name: (address, password) for name, address, password in found}
        try:
            for (address, _), path in zip(
                servers.values(), ("/api/health", "/health"), strict=True
            ):
                wait_until(lambda at=address + path: status(at) == 200, 300, f"{address} answers")
            yield servers, process
        finally:
            below = {pid: start_of(pid) for pid in descendants(process.pid)}
            os.kill(process.pid, signal.SIGINT)
            process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(below) >= 2
    assert not [pid for pid, began in below.items() if start_of(pid) == began], "it left a process"


ASKED = {
    "Prefect": ("/api/flow_runs/filter", {}),
    "MLflow": ("/api/2.0/mlflow/experiments/search?max_results=5", None),
}


@pytest.mark.parametrize("name", ASKED)
def test_only_who_has_the_password_is_answered(pages: tuple, name: str) -> None:
    (address, password), (path, body) = pages[0][name], ASKED[name]
    assert status(address + path, body=body) == 401
    assert status(address + path, "papa:wrong", body) == 401
    assert status(address + path, password, body) == 200


def test_they_listen_on_loopback_and_mlflow_has_no_assistant(pages: tuple, store: Path) -> None:
    servers, process = pages
    assert all(map(is_loopback, listening({process.pid, *descendants(process.pid)})))
    address, password = servers["MLflow"]
    for path in ("config", "message", "sessions/x"):
        assert status(f"{address}/ajax-api/3.0/mlflow/assistant/{path}", password) == 404
    events = f"ws{servers['Prefect'][0].removeprefix('http')}/api/events/in"
    with pytest.raises(WebSocketException):
        connect_socket(events).recv()
    run = connect(address_in(store)).search_runs(["1"], "tags.`papa.role` = 'study'")[0].info.run_id
    file = f"{address}/get-artifact?run_uuid={run}&path=results/summary.csv"
    assert (status(file), status(file, password)) == (401, 200)
