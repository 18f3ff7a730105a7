"""A new SQLite database as its program makes it, kept on this machine: to make one takes a hundred
migrations, seconds, and to copy it none.

::

    <cache>/<package>/<version>-<SHA-256>.db   as that version of the package makes it
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from papa.storage.atomic import aside, write_atomically
from papa.storage.cache import cache_folder
from papa.storage.metadata import sha256_of_file


def start_from_template(package: str, database: Path) -> None:
    """Put the template where no database is yet, if there is one; under its maker's lock."""
    if database.exists():
        return
    with suppress(OSError):
        template = _template(package)
        if template is not None:
            write_atomically(database, template)


def keep_as_template(
    package: str, database: Path, prepare: Callable[[sqlite3.Connection], bool]
) -> None:
    """Keep a copy of a database that the package has just made, and may use, as the template,
    unless there is one; where that fails there is none. ``prepare`` makes the copy one that anybody
    may start from, and says whether it is.
    """
    folder = cache_folder() / package
    scratch = aside(folder / "new.db")
    with suppress(OSError, sqlite3.Error):
        if _template(package) is not None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        with (
            closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(scratch)) as new,
        ):
            old.backup(new)
            wanted = prepare(new)
            new.commit()
        if wanted:
            scratch.replace(folder / f"{version(package)}-{sha256_of_file(scratch)}.db")
    with suppress(OSError):
        scratch.unlink(missing_ok=True)


def _template(package: str) -> bytes | None:
    """The template; one that is damaged is removed, so that another is kept."""
    for path in (cache_folder() / package).glob(f"{version(package)}-*.db"):
        content = path.read_bytes()
        if path.stem.endswith(hashlib.sha256(content).hexdigest()):
            return content
        path.unlink()
    return None
