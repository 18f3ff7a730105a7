"""New databases are whole or not there, and copies of the first one that this machine made."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from papa.storage.template import make_database

from papa.storage.cache import cache_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))


def make(database: Path) -> None:
    if not database.exists():
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE of_this_machine (place TEXT)")
            connection.execute("INSERT INTO of_this_machine VALUES ('here')")
            connection.commit()


def clean(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM of_this_machine")


def made(database: Path, package: str = "prefect") -> Path:
    make_database(package, database, make, clean)
    return database


def places(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [place for (place,) in connection.execute("SELECT place FROM of_this_machine")]


def test_a_new_database_is_a_copy_of_the_first_one_as_it_was_cleaned(tmp_path: Path) -> None:
    assert places(made(tmp_path / "store" / "first.db")) == ["here"]
    assert places(made(tmp_path / "store" / "second.db")) == []
    assert places(tmp_path / "store" / "first.db") == ["here"]
    names = sorted(path.name for path in (tmp_path / "store").iterdir())
    assert names == ["first.db", "second.db"]


def test_each_package_has_its_own(tmp_path: Path) -> None:
    made(tmp_path / "first.db")
    assert places(made(tmp_path / "second.db", "mlflow")) == ["here"]


def test_a_database_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.db").write_bytes(b"mine")
    assert made(tmp_path / "mine.db").read_bytes() == b"mine"
    assert not cache_folder().exists()


def test_one_whose_making_failed_is_not_there(tmp_path: Path) -> None:
    def fail(database: Path) -> None:
        database.write_bytes(b"half of the tables")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        make_database("prefect", tmp_path / "store" / "new.db", fail)
    assert not list((tmp_path / "store").iterdir())
    assert not cache_folder().exists()


def test_of_two_that_are_made_at_once_the_first_stays(tmp_path: Path) -> None:
    database = tmp_path / "new.db"

    def late(fresh: Path) -> None:
        made(database)
        make(fresh)
        with closing(sqlite3.connect(fresh)) as connection:
            clean(connection)
            connection.commit()

    make_database("prefect", database, late, clean)
    assert places(database) == ["here"]


def test_a_file_system_may_have_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("Operation not permitted")  # As vfat does.

    monkeypatch.setattr(os, "link", refuse)
    assert places(made(tmp_path / "store" / "first.db")) == ["here"]
    assert places(made(tmp_path / "store" / "second.db")) == []
    assert len(list((tmp_path / "store").iterdir())) == 2


def test_without_a_cache_there_is_no_template(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    for name in ("first.db", "second.db"):
        assert places(made(tmp_path / name)) == ["here"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda sound: b"no database" * 1000,
        lambda sound: b"",
        lambda sound: sound[:-4096] + bytes(4096),
        lambda sound: sound.replace(b"of_this_machine", b"of_that_machine"),
    ],
)
def test_a_damaged_template_is_made_anew(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    made(tmp_path / "first.db")
    (template,) = (cache_folder() / "prefect").iterdir()
    template.write_bytes(damage(template.read_bytes()))
    assert places(made(tmp_path / "second.db")) == ["here"]
    assert places(made(tmp_path / "third.db")) == []
