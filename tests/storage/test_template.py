"""New databases are copies of the first one that this machine made."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from papa.storage.cache import cache_folder
from papa.storage.template import keep_as_template, start_from_template


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))


def made(database: Path) -> Path:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE of_this_machine (place TEXT)")
        connection.execute("INSERT INTO of_this_machine VALUES ('here')")
        connection.commit()
    return database


def emptied(database: sqlite3.Connection) -> bool:
    database.execute("DELETE FROM of_this_machine")
    return True


def places(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [place for (place,) in connection.execute("SELECT place FROM of_this_machine")]


def test_a_new_database_is_a_copy_of_the_first_one_as_it_was_prepared(tmp_path: Path) -> None:
    first = made(tmp_path / "first.db")
    start_from_template("prefect", tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    keep_as_template("prefect", first, emptied)
    start_from_template("prefect", tmp_path / "second.db")
    assert places(tmp_path / "second.db") == []
    assert places(first) == ["here"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "first.db", "second.db"]


def test_each_package_has_its_own(tmp_path: Path) -> None:
    keep_as_template("prefect", made(tmp_path / "first.db"), emptied)
    start_from_template("mlflow", tmp_path / "second.db")
    assert not (tmp_path / "second.db").exists()


def test_a_database_that_is_none_to_start_from_is_no_template(tmp_path: Path) -> None:
    keep_as_template("prefect", made(tmp_path / "used.db"), lambda _: False)
    start_from_template("prefect", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
    assert not list((cache_folder() / "prefect").iterdir())


def test_a_database_that_is_there_stays(tmp_path: Path) -> None:
    keep_as_template("prefect", made(tmp_path / "first.db"), emptied)
    (tmp_path / "mine.db").write_bytes(b"mine")
    start_from_template("prefect", tmp_path / "mine.db")
    assert (tmp_path / "mine.db").read_bytes() == b"mine"


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
    keep_as_template("prefect", made(tmp_path / "first.db"), emptied)
    (template,) = (cache_folder() / "prefect").iterdir()
    sound = template.read_bytes()
    template.write_bytes(damage(sound))
    start_from_template("prefect", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
    keep_as_template("prefect", tmp_path / "first.db", emptied)
    start_from_template("prefect", tmp_path / "new.db")
    assert places(tmp_path / "new.db") == []
