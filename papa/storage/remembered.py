"""What this machine found out of files before and need not find out again, in its cache.

::

    <cache>/remembered/<digest of the key>.json   a key, what was found for it, their digest

A key holds all that the finding depends on, so what is remembered never grows old; any of it may be
deleted.
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
from papa.storage.atomic import write_atomically
from papa.storage.cache import cache_folder
from papa.storage.metadata import is_signed, sha256_of_file, sha256_of_json, signed

_OLD_ENOUGH_NS = 2_000_000_000
"""How old a last change must be: file systems count in ticks, with two changes in one."""


def recall(key: Mapping[str, Any]) -> Any:
    """What was remembered under ``key``; None where nothing was, or it is damaged."""
    try:
        document = json.loads(_path(key).read_bytes())
        return document["found"] if is_signed(document) and document["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def remember(key: Mapping[str, Any], found: Any) -> None:
    """Remember a JSON value under ``key``; a cache that cannot be written remembers nothing."""
    path = _path(key)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(
            path, json.dumps(signed({"key": dict(key), "found": found}), indent=1) + "\n"
        )


def digest_by_status(path: Path) -> str:
    """SHA-256 of a file, read only where the file system says that it changed since it was read
    last.

    Size, inode and the times of the last changes say so; the time of the last change of the inode
    is set by the kernel alone. For what is computed with, read the file: ``sha256_of_file``.
    """
    key = status_of(path)
    known = recall(key)
    if isinstance(known, str):
        return known
    digest = sha256_of_file(path)
    old_enough = time.time_ns() - max(key["modified_ns"], key["changed_ns"]) > _OLD_ENOUGH_NS
    if old_enough and status_of(path) == key:
        remember(key, digest)
    return digest


def status_of(path: Path) -> dict[str, Any]:
    """What the file system says of a file; where it says something else, so may the file."""
    status = path.stat()
    return {
        "file": os.path.realpath(path),
        "device": status.st_dev,
        "inode": status.st_ino,
        "bytes": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "changed_ns": status.st_ctime_ns,
    }


def remembered_folder() -> Path:
    """Where it lies."""
    return cache_folder() / "remembered"


def _path(key: Mapping[str, Any]) -> Path:
    return remembered_folder() / f"{sha256_of_json(dict(key))}.json"


class Watched:
    """Files from outside as the file system describes them before they are read.

    A digest taken before a file is read may be of other bytes than were read. So it is taken after,
    and the file system must say then what it said before: it knows of every exchange and write.
    """

    def __init__(self, what: str, paths: Iterable[Path], error: type[PapaError]) -> None:
        self._what, self._paths, self._error = what, tuple(paths), error
        self._seen = self._statuses()

    def check(self) -> None:
        """Refuse files that were exchanged or written to since."""
        for path, before, now in zip(self._paths, self._seen, self._statuses(), strict=True):
            if before != now:
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

    def _statuses(self) -> list[dict[str, Any] | None]:
        return [status_of(path) if path.exists() else None for path in self._paths]
