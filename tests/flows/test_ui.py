"""``papa ui``: Prefect's and MLflow's pages on loopback, each behind a password."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect as connect_socket

from papa.storage.store import Store
from tests.flows.conftest import start, until
from tests.flows.processes import (
    PATIENCE_SECONDS,
    descendants,
    is_loopback,
    listening,
    start_of,
    status,
    wait_until,
)
from tests.tasks.tracked import address_in, log_study, logged

pytestmark = pytest.mark.server


ASKED = {
    "Prefect": ("/api/health", "/api/flow_runs/filter", {}),
    "MLflow": ("/health", "/api/2.0/mlflow/experiments/search?max_results=5", None),
}


def test_two_servers_on_loopback_answer_who_has_the_password_until_ctrl_c(
    tiny: tuple[str, Path], tmp_path: Path
) -> None:
    store = Store(shutil.copytree(tiny[1], tmp_path / "store"))
    log_study(tiny[0], store)
    with start("ui", "--store", store.address) as process:
        printed = until(process.stdout, "Ctrl-C ends")
        line = r"^(Prefect|MLflow) +(http://127\.0\.0\.1:\d+) +(papa:\S+)"
        found = {name: rest for name, *rest in re.findall(line, printed, re.M)}
        for name, (address, password) in found.items():
            health, path, body = ASKED[name]
            wait_until(
                lambda at=address + health: status(at) == 200,
                PATIENCE_SECONDS,
                f"{name} answers",
                process,
            )
            logins = (None, "papa:wrong", password)
            assert [status(address + path, one, body) for one in logins] == [401, 401, 200]
        below = {pid: start_of(pid) for pid in descendants(process.pid)}
        assert all(map(is_loopback, listening({process.pid, *below})))

        events = f"ws{found['Prefect'][0].removeprefix('http')}/api/events/in"
        with pytest.raises(WebSocketException):
            connect_socket(events).recv()
        address, password = found["MLflow"]
        for path in ("config", "message", "sessions/x"):
            assistant = f"{address}/ajax-api/3.0/mlflow/assistant/{path}"
            assert status(assistant, password) == 404, "MLflow has no assistant"
        (run,) = logged(address_in(store.root), "small").query("role == 'study'")["id"]
        file = f"{address}/get-artifact?run_uuid={run}&path=results/summary.csv"
        assert (status(file), status(file, password)) == (401, 200)

        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert len(below) >= 2
    assert not [pid for pid, began in below.items() if start_of(pid) == began], "it left a process"
