"""The database of a study's own Prefect server: one that a killed server left without its tables is
made anew.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.server import prepare_database, start_own_server
from papa.errors import PapaError
from papa.study.store import Store


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without a template."""
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))


def test_a_new_database_is_marked_until_it_is_made(tmp_path: Path) -> None:
    prepare_database(tmp_path / "prefect.db")
    assert [path.name for path in tmp_path.iterdir()] == ["prefect.db.unmade"]


def test_what_a_killed_server_left_unmade_is_removed(tmp_path: Path) -> None:
    database = tmp_path / "prefect.db"
    prepare_database(database)
    for name in ("prefect.db", "prefect.db-wal", "prefect.db-shm"):
        (tmp_path / name).write_bytes(b"half of the tables")
    prepare_database(database)
    assert [path.name for path in tmp_path.iterdir()] == ["prefect.db.unmade"]


def test_a_database_that_was_made_stays(tmp_path: Path) -> None:
    database = tmp_path / "prefect.db"
    with closing(sqlite3.connect(database)) as made:
        made.execute("CREATE TABLE flow (id)")
    content = database.read_bytes()
    prepare_database(database)
    assert database.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["prefect.db"]


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
            start_own_server(store)
