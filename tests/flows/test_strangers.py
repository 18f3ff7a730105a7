"""Our servers answer this machine's programs and their own pages, and no page from elsewhere."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from flows.environment import quiet_engines
from flows.server import OwnServer
from papa.study.store import Store
from tests.flows.processes import PATIENCE_SECONDS
from tests.flows.test_ui import pages, status

pytestmark = pytest.mark.server


def asked(port: int, path: str, **headers: str) -> tuple[int, str | None]:
    """The status of a request with these headers, and the origin that may read the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("access-control-allow-origin")
    finally:
        connection.close()


def keeps_strangers_out(port: int, path: str) -> None:
    """It answers whoever calls it by a name of this machine and shows no page of another's."""
    refused = (http.client.FORBIDDEN, None)
    for host in (
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        f"[::1]:{port}",
    ):
        assert asked(port, path, Host=host) == (200, None)
    for host in (
        "evil.example",
        f"evil.example:{port}",
        f"localhost.evil.example:{port}",
        "10.evil.example",
        "",
    ):
        assert asked(port, path, Host=host) == refused, host
    for own in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
        code, reader = asked(port, path, Origin=own)
        assert code == 200
        assert reader in (None, own)
    # Through a tunnel the page has another port, and so has the Host of what it asks.
    assert asked(port, path, Host="localhost:8080", Origin="http://localhost:8080")[0] == 200
    elsewhere = (
        "https://evil.example",
        f"http://evil.example:{port}",
        "http://localhost:1",
        f"https://localhost:{port}",
    )
    for origin in (*elsewhere, "null", ""):
        assert asked(port, path, Origin=origin) == refused, origin


def keeps_strangers_from_events(port: int) -> None:
    """Prefect's events come over a WebSocket, which no rule of browsers keeps from pages
    of others.
    """
    address = f"ws://127.0.0.1:{port}/api/events/in"
    with connect(address), connect(address, origin=f"http://localhost:{port}"):  # type: ignore[arg-type]
        pass
    with pytest.raises(InvalidStatus), connect(address, origin="https://evil.example"):  # type: ignore[arg-type]
        pass


def test_a_runs_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet_engines()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv("PREFECT_API_URL", "")
    server = OwnServer(Store(tmp_path))
    try:
        server.wait()
        keeps_strangers_out(server.port, "/api/admin/version")
        keeps_strangers_from_events(server.port)
    finally:
        server.end()


def test_both_pages(tmp_path: Path) -> None:
    with pages(tmp_path / "store") as shown:
        assert status(shown.link("Prefect")) == status(shown.link("MLflow")) == 200
        prefect, mlflow = (
            int(shown.link(name).split("/")[2].partition(":")[2]) for name in ("Prefect", "MLflow")
        )
        keeps_strangers_out(prefect, "/api/admin/version")
        keeps_strangers_from_events(prefect)
        keeps_strangers_out(mlflow, "/version")
        keeps_strangers_out(mlflow, "/ajax-api/2.0/mlflow/experiments/get?experiment_id=0")
