"""Files from outside, watched while they are read: what was read of them is what their digest says,
or is refused.

A digest taken before a file is read may be of other bytes than were read. So the digest is taken
after the file was read, and the file system must say then what it said before: it knows of every
exchange and every write in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from papa.errors import PapaError
from papa.storage.remembered import status_of


class Watched:
    """Files as the file system describes them now, before they are read."""

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
