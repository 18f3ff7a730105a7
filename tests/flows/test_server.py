"""The server that ``papa ui`` runs is found by what it wrote; a database is whole or not there, and
the first one is a template; what engines print.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from flows.environment import quiet_engines
from flows.server import OwnServer, running_server, use_server
from papa.errors import PapaError
from papa.processes import Process
from papa.study.store import Store
from tests.faults.disks import fill, small_disk
from tests.flows.processes import PATIENCE_SECONDS


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


def test_a_server_that_answers_is_found(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = written(tmp_path, str(Process.this()), port)
    assert running_server(store) == port
    monkeypatch.setenv("PREFECT_API_URL", "")
    assert use_server(store) is None, "an empty address is none"
    assert os.environ["PREFECT_API_URL"] == f"http://127.0.0.1:{port}/api"


THIS = Process.this()


@pytest.mark.parametrize(
    "process",
    [
        str(replace(THIS, started=THIS.started + 1)),
        str(replace(THIS, host="elsewhere")),
        "nonsense",
        7,
        None,
    ],
    ids=["gone", "on another machine", "text", "number", "nothing"],
)
def test_what_does_not_run_here_is_passed_over(tmp_path: Path, process: object, port: int) -> None:
    assert running_server(written(tmp_path, process, port)) is None


def test_what_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    assert running_server(Store(tmp_path / "nothing is written")) is None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        assert running_server(written(tmp_path / "closed", str(THIS), port)) is None
    store = Store(tmp_path / "pipe")
    store.prefect.mkdir(parents=True)
    os.mkfifo(store.prefect / "server.json")
    assert running_server(store) is None


@pytest.mark.server
def test_a_database_whose_making_was_killed_is_not_there(tmp_path: Path) -> None:
    source = (
        "import os, signal, sys\n"
        "from flows.environment import prepare_environment\n"
        "from flows.server import _application\n"
        "from papa.study.store import Store\n"
        "store = Store(sys.argv[1])\n"
        "prepare_environment(store)\n"
        "database = store.prefect / 'prefect.db'\n"
        "os.environ['PREFECT_API_DATABASE_CONNECTION_URL'] = f'sqlite+aiosqlite:///{database}'\n"
        "os.environ['PAPA_PREFECT_PAGES'] = ''\n"
        "os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "_application('http://127.0.0.1:1')\n"
    )
    command = [sys.executable, "-c", source, str(tmp_path)]
    assert (
        subprocess.run(command, timeout=PATIENCE_SECONDS, check=False).returncode == -signal.SIGKILL
    )
    assert list(tmp_path.glob("prefect/.prefect.db.*/whole"))
    assert not (tmp_path / "prefect" / "prefect.db").exists()


def test_what_is_no_database_is_said_before_a_server_starts(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.make()
    store.prefect.mkdir()
    (store.prefect / "prefect.db").write_bytes(b"garbage" * 1000)
    for _ in range(2):  # The first one leaves no lock behind.
        with pytest.raises(
            PapaError,
            match=r"prefect\.db is damaged \(file is not a database\): remove it and run again",
        ):
            OwnServer(store)


@pytest.mark.server
def test_the_database_of_a_server_that_made_it_is_a_template_and_a_used_one_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet_engines()
    monkeypatch.setenv("PREFECT_API_URL", "")

    def run_one(store: Path, cache: Path) -> list[Path]:
        monkeypatch.setenv("PREFECT_HOME", str(store / "prefect"))
        monkeypatch.setenv("PAPA_CACHE", str(cache))
        server = OwnServer(Store(store))
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


@pytest.mark.server
def test_a_cut_line_to_prefect_leaves_no_traceback(tmp_path: Path) -> None:
    source = (
        "import logging, sys\n"
        "from flows.environment import prepare_environment\n"
        "from papa.study.store import Store\n"
        f"prepare_environment(Store({str(tmp_path / 'store')!r}), verbose=sys.argv[1] == "
        "'verbose')\n"
        "import prefect\n"
        "logging.getLogger('websockets.client').error('keepalive ping failed')\n"
    )
    for word, told in (("quiet", False), ("verbose", True)):
        done = subprocess.run(
            [sys.executable, "-c", source, word], capture_output=True, text=True, check=True
        )
        assert ("keepalive ping failed" in done.stdout + done.stderr) == told
