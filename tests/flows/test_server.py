"""The server that ``papa ui`` runs is found by what it wrote; one that was not used makes a
template.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from flows.environment import quiet_engines
from flows.server import running_server, start_own_server, use_server
from papa.errors import PapaError
from papa.processes import Process
from papa.study.store import Store
from tests.faults.disks import fill, small_disk


class Healthy(BaseHTTPRequestHandler):
    """Answers as Prefect's server does when it is asked for its health."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def written(folder: Path, process: object, port: object) -> Store:
    """A store in which somebody wrote that a server runs."""
    store = Store(folder)
    store.prefect.mkdir(parents=True)
    (store.prefect / "server.json").write_text(json.dumps({"process": process, "port": port}))
    return store


def test_a_server_that_answers_is_found(tmp_path: Path, port: int) -> None:
    assert running_server(written(tmp_path, str(Process.this()), port)) == port


def test_an_empty_address_is_none(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "")
    assert use_server(written(tmp_path, str(Process.this()), port)) is None
    assert os.environ["PREFECT_API_URL"] == f"http://127.0.0.1:{port}/api"


def test_where_nothing_is_written_there_is_none(tmp_path: Path) -> None:
    assert running_server(Store(tmp_path)) is None


def test_a_process_that_is_gone_is_passed_over(tmp_path: Path, port: int) -> None:
    this = Process.this()
    before = Process(this.host, this.pid, this.started + 1)
    assert running_server(written(tmp_path, str(before), port)) is None


def test_another_machine_is_passed_over(tmp_path: Path, port: int) -> None:
    this = Process.this()
    assert (
        running_server(written(tmp_path, str(Process("elsewhere", this.pid, this.started)), port))
        is None
    )


def test_a_port_that_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert running_server(written(tmp_path, str(Process.this()), free.getsockname()[1])) is None


def test_a_pipe_is_passed_over(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prefect.mkdir()
    os.mkfifo(store.prefect / "server.json")
    assert running_server(store) is None


@pytest.mark.parametrize("process", ["nonsense", 7, None])
def test_what_is_damaged_is_passed_over(tmp_path: Path, process: object, port: int) -> None:
    assert running_server(written(tmp_path, process, port)) is None


@pytest.mark.server
def test_the_database_of_a_server_that_made_it_is_a_template_and_a_used_one_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet_engines()
    monkeypatch.setenv("PREFECT_API_URL", "")

    def run_one(store: Path, cache: Path) -> list[Path]:
        monkeypatch.setenv("PREFECT_HOME", str(store / "prefect"))
        monkeypatch.setenv("PAPA_CACHE", str(cache))
        server = start_own_server(Store(store))
        try:
            server.wait()
        finally:
            server.end()
        return [*(cache / "prefect").glob("*.db")]

    assert len(run_one(tmp_path / "store", tmp_path / "cache")) == 1
    assert run_one(tmp_path / "store", tmp_path / "another cache") == []


@pytest.mark.server
def test_on_a_full_disk_none_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with small_disk(tmp_path / "store" / "prefect", 8) as disk:
        fill(disk)
        with pytest.raises(PapaError, match=r"the disk of .*/prefect is full \(0 bytes are free"):
            use_server(Store(tmp_path / "store"))
