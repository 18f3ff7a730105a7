"""Files from outside that change while they are read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from papa.errors import PapaError


def _status(path: Path) -> tuple[object, ...]:
    """What the file system says of a file: where it says something else, so may the file. The time
    of the last change of the inode is set by the kernel alone.
    """
    status = path.stat() if path.exists() else None
    names = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    return os.path.realpath(path), *(getattr(status, name, 0) for name in names)


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
