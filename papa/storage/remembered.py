"""What this machine found out of files before and need not find out again, in its cache; files that
change while they are read.

A key holds all that the finding depends on, so what is remembered never grows old.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from papa.errors import PapaError
from papa.storage.artifacts import sha256_of_file, sha256_of_json
from papa.storage.files import cache_folder, write_atomically

_FORMAT = 2
"""Of what is remembered; format 1 wrapped it."""
_OLD_ENOUGH_NS = 2_000_000_000
"""How old a last change must be: file systems count in ticks, with two changes in one."""


def remembered_folder() -> Path:
    """Where it lies."""
    return cache_folder() / "remembered"


def recall(key: Mapping[str, Any]) -> Any:
    """What was remembered under ``key``; None where nothing was, or it is damaged."""
    with suppress(OSError, ValueError):
        return json.loads(_path(key).read_bytes())


def remember(key: Mapping[str, Any], found: Any) -> None:
    """Remember a JSON value under ``key``; a cache that cannot be written remembers nothing."""
    with suppress(OSError):
        write_atomically(_path(key), json.dumps(found))


def _path(key: Mapping[str, Any]) -> Path:
    return remembered_folder() / f"{sha256_of_json([_FORMAT, dict(key)])}.json"


def _status(path: Path) -> dict[str, Any]:
    """What the file system says of a file: where it says something else, so may the file. The time
    of the last change of the inode is set by the kernel alone.
    """
    status = path.stat() if path.exists() else None
    names = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    return {"file": os.path.realpath(path), **{name: getattr(status, name, 0) for name in names}}


def digest_by_status(path: Path) -> str:
    """SHA-256 of a file, read only where the file system says that it changed since it was read
    last. For what is computed with, read the file: ``sha256_of_file``.
    """
    key = _status(path)
    digest = recall(key) or sha256_of_file(path)
    age = time.time_ns() - max(key["st_mtime_ns"], key["st_ctime_ns"])
    if age > _OLD_ENOUGH_NS and _status(path) == key:
        remember(key, digest)
    return str(digest)


class Watched:
    """Files from outside as the file system describes them before they are read.

    A digest taken before a file is read may be of other bytes than were read. So it is taken after,
    and the file system must say then what it said before: it knows of every exchange and write.
    """

    def __init__(self, what: str, paths: Iterable[Path], error: type[PapaError]) -> None:
        self._what, self._error = what, error
        self._seen = {path: _status(path) for path in paths}

    def check(self) -> None:
        """Refuse files that were exchanged or written to since."""
        for path, before in self._seen.items():
            if _status(path) != before:
                raise self._error(
                    f"{self._what}: {path} changed while it was read: leave it alone and run again"
                )

    def check_digest(self, expected: str, found: str) -> None:
        """Refuse files that changed since, or are not what they are known by."""
        self.check()
        if found != expected:
            raise self._error(
                f"{self._what} changed meanwhile (expected digest {expected[:12]}, found "
                f"{found[:12]}): put back what was there, or run again with what is there now"
            )
