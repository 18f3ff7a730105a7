"""The server that ``papa ui`` runs is found by what it wrote; new databases come from a template."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from flows.server import running_server, use_server
from flows.server_template import keep_as_template, start_from_template
from papa.errors import PapaError
from papa.processes import Process
from papa.storage.cache import cache_folder
from tasks.store import Store
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


def test_an_empty_address_is_none(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert running_server(written(tmp_path, str(Process("elsewhere", this.pid, this.started)), port)) is None


def test_a_port_that_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert running_server(written(tmp_path, str(Process.this()), free.getsockname()[1])) is None


@pytest.mark.parametrize("process", ["nonsense", 7, None])
def test_what_is_damaged_is_passed_over(tmp_path: Path, process: object, port: int) -> None:
    assert running_server(written(tmp_path, process, port)) is None


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))


def made(database: Path, runs: int) -> Path:
    """A database with the tables that say whether it was used."""
    with closing(sqlite3.connect(database)) as connection:
        for table in ("flow", "flow_run", "block_document", "configuration", "variable"):
            connection.execute(f"CREATE TABLE {table} (id INTEGER)")
        connection.executemany("INSERT INTO flow_run VALUES (?)", [(run,) for run in range(runs)])
        connection.commit()
    return database


def tables(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def test_a_new_database_is_a_copy_of_the_first_one(tmp_path: Path, cache: None) -> None:
    first = made(tmp_path / "first.db", runs=0)
    start_from_template(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    keep_as_template(first)
    start_from_template(tmp_path / "second.db")
    assert tables(tmp_path / "second.db") == tables(first) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "first.db", "second.db"]


def test_a_database_that_was_used_is_no_template(tmp_path: Path, cache: None) -> None:
    keep_as_template(made(tmp_path / "used.db", runs=1))
    start_from_template(tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_database_that_is_there_stays(tmp_path: Path, cache: None) -> None:
    keep_as_template(made(tmp_path / "first.db", runs=0))
    (tmp_path / "mine.db").write_bytes(b"mine")
    start_from_template(tmp_path / "mine.db")
    assert (tmp_path / "mine.db").read_bytes() == b"mine"


def test_a_damaged_template_is_none(tmp_path: Path, cache: None) -> None:
    keep_as_template(made(tmp_path / "first.db", runs=0))
    (template,) = (cache_folder() / "prefect").iterdir()
    template.write_bytes(b"no database" * 1000)
    start_from_template(tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.server
def test_on_a_full_disk_none_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with small_disk(tmp_path / "store" / "prefect", 8) as disk:
        fill(disk)
        with pytest.raises(PapaError, match=r"the disk of .*/prefect is full \(0 bytes are free"):
            use_server(Store(tmp_path / "store"))
