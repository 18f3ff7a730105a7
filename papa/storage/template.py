"""New SQLite databases of Prefect and MLflow, from a template that is kept on this machine: to make
one takes a hundred migrations, seconds, and to copy it none.

::

    <cache>/<package>/<version>-<SHA-256>.db   as that version of the package makes it
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from papa.storage.atomic import aside
from papa.storage.cache import cache_folder
from papa.storage.metadata import sha256_of_file


def make_database(
    package: str,
    database: Path,
    make: Callable[[Path], object],
    clean: Callable[[sqlite3.Connection], object] = lambda _: None,
) -> None:
    """Make a database where none is, aside, and link it into place, whole: two processes that make
    its tables at once break each other, and one that is killed leaves what none can open.

    ``make`` gets the path of a copy of the template, or of nothing where there is none; then what
    it makes becomes the template, once ``clean`` has removed what is of this database alone. Where
    the template cannot be read or kept there is none.
    """
    if database.exists():
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{database.name}.", dir=database.parent) as scratch:
        fresh, whole = Path(scratch) / "fresh", Path(scratch) / "whole"
        with suppress(OSError):
            if template := _template(package):
                fresh.write_bytes(template)
        make(fresh)
        with suppress(OSError, sqlite3.Error):
            _keep(package, fresh, clean)
        # A copy, for its maker may keep the first one open.
        _copy(fresh, whole)
        try:
            os.link(whole, database)
        except FileExistsError:
            pass
        except OSError:  # Some file systems have no hard links.
            if not database.exists():
                whole.replace(database)


def _keep(package: str, database: Path, clean: Callable[[sqlite3.Connection], object]) -> None:
    """Keep a copy of a database as the template, unless there is one."""
    if _template(package) is not None:
        return
    folder = cache_folder() / package
    folder.mkdir(parents=True, exist_ok=True)
    scratch = aside(folder / "new.db")
    try:
        _copy(database, scratch, clean)
        scratch.replace(folder / f"{version(package)}-{sha256_of_file(scratch)}.db")
    finally:
        scratch.unlink(missing_ok=True)


def _copy(
    database: Path, to: Path, clean: Callable[[sqlite3.Connection], object] = lambda _: None
) -> None:
    with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(to)) as new:
        old.backup(new)
        clean(new)
        new.commit()


def _template(package: str) -> bytes | None:
    """The template; one that is damaged is removed, so that another is kept."""
    for path in (cache_folder() / package).glob(f"{version(package)}-*.db"):
        content = path.read_bytes()
        if path.stem.endswith(hashlib.sha256(content).hexdigest()):
            return content
        path.unlink()
    return None
