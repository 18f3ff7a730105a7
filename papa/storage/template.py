"""A new SQLite database as its program makes it, kept on this machine: to make one takes a hundred migrations, seconds,
and to copy it none.

::

    <cache>/<package>/<version>.db   as that version of the package makes it
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from papa.storage.atomic import aside
from papa.storage.cache import cache_folder


def start_from_template(package: str, database: Path) -> None:
    """Put the template where no database is yet, if this machine has one; under the lock of who makes databases."""
    if database.exists():
        return
    with suppress(OSError, sqlite3.Error):
        _copy(_template(package), database)


def keep_as_template(package: str, database: Path, prepare: Callable[[sqlite3.Connection], bool]) -> None:
    """Keep a copy of a database as the template, unless there is one; where that fails there is none.

    Args:
        package: whose database.
        database: as the package has just made it; another process may use it.
        prepare: makes the copy one that anybody may start from; whether it is one.
    """
    if _template(package).exists():
        return
    with suppress(OSError, sqlite3.Error):
        _template(package).parent.mkdir(parents=True, exist_ok=True)
        _copy(database, _template(package), prepare)


def _template(package: str) -> Path:
    return cache_folder() / package / f"{version(package)}.db"


def _copy(source: Path, target: Path, prepare: Callable[[sqlite3.Connection], bool] = lambda _: True) -> None:
    """Copy a database that another process may use; ``target`` appears whole."""
    scratch = aside(target)
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(scratch)) as new,
        ):
            old.backup(new)
            wanted = prepare(new)
            new.commit()
        if wanted:
            scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
