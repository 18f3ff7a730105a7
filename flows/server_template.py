"""A new database of Prefect's as its server makes it, kept on this machine: to make it takes a hundred migrations, five
seconds, and to copy it none.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from papa.storage.atomic import aside
from papa.storage.cache import cache_folder

_USED = ("flow", "flow_run", "block_document", "configuration", "variable")
"""Tables that are empty until somebody uses the database."""


def start_from_template(database: Path) -> None:
    """Put the template where no database is yet, if this machine has one; under the lock of who starts servers."""
    if database.exists():
        return
    with suppress(OSError, sqlite3.Error):
        _copy(_template(), database)


def keep_as_template(database: Path) -> None:
    """Keep a database as the template, unless there is one or the database was used; where that fails there is none."""
    if _template().exists():
        return
    with suppress(OSError, sqlite3.Error):
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as made:
            if any(made.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in _USED):
                return
        _template().parent.mkdir(parents=True, exist_ok=True)
        _copy(database, _template())


def _template() -> Path:
    return cache_folder() / "prefect" / f"{version('prefect')}.db"


def _copy(source: Path, target: Path) -> None:
    """Copy a database that another process may use; ``target`` appears whole."""
    scratch = aside(target)
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(scratch)) as new,
        ):
            old.backup(new)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
