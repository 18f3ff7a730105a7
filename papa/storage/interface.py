"""Where artifacts lie: one interface to a folder (``local.py``) and to what is behind a URI
(``remote.py``); ``tests/storage/laws.py`` holds both to the same laws.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from papa.errors import DamagedError
from papa.storage.metadata import METADATA


@dataclass(frozen=True)
class StoredFile:
    """A file in a store, by its path below the address that was asked, with slashes, and when it
    was written, in seconds since 1970.
    """

    path: str
    size: int
    modified: float


class ArtifactStore(ABC):
    """What lies at one address: an artifact, a folder of artifacts, or all that a store holds.

    Every method raises ``ArtifactError`` where the store cannot be used, ``TransientError`` where
    it does not answer.

    Attributes:
        address: a folder or a URI; names in calls are below it, with slashes.
        killed: matches the path of a file that only a killed writer leaves, below a folder whose
            artifacts are named by 64 hex digits. Group 1 is what may be removed, unless it is the
            data of the artifact in place.
    """

    killed: ClassVar[re.Pattern[str]]

    def __init__(self, address: str) -> None:
        self.address = address

    @property
    @abstractmethod
    def machine_folder(self) -> Path:
        """The folder on this machine for what is no artifact."""

    @property
    @abstractmethod
    def machine_scratch(self) -> Path | None:
        """Where artifacts are on their way on this machine; None where that is beside them."""

    @abstractmethod
    def check(self, *, write: bool) -> None:
        """Ask whether the store can be used for reading, or also writing, before work starts."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None where there is none."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all, over what was there."""

    @abstractmethod
    def touch(self, name: str) -> None:
        """Make an empty file, or renew its time."""

    @abstractmethod
    def files(self, below: str = "") -> Iterable[StoredFile]:
        """Every file below the address, or below a folder in it.

        A symbolic link below the address counts as a file and is not followed.
        """

    @abstractmethod
    def complete(self) -> list[str]:
        """The names of the complete artifacts directly below the address, sorted."""

    def metadata_below(self) -> dict[str, bytes]:
        """The metadata of these, by name; one that is removed meanwhile is left out."""
        found = {name: self.read(f"{name}/{METADATA}") for name in self.complete()}
        return {name: data for name, data in found.items() if data is not None}

    @abstractmethod
    def scratch(self) -> AbstractContextManager[Path]:
        """An empty folder for the artifact's files; gone when the block ends."""

    @abstractmethod
    def publish(self, scratch: Path, metadata: Mapping[str, Any]) -> None:
        """Make the artifact appear at once, from the files in ``scratch``, which may be moved, and
        the metadata with their digests; where there is one, that one stays.
        """

    @abstractmethod
    def inspect(self) -> dict[str, Any]:
        """The artifact's metadata, after a look at all of it that needs no fetching."""

    def is_sound(self) -> bool:
        """Whether an artifact is there and, as far as is known without fetching, undamaged."""
        try:
            self.inspect()
        except DamagedError:
            return False
        return True

    @abstractmethod
    def fetch(self, digest: str | None) -> Path:
        """The artifact's folder on this machine, kept there; it must hold ``digest``, if any."""

    @abstractmethod
    def borrow(self, needed: Iterable[str]) -> AbstractContextManager[Path]:
        """The artifact's verified files on this machine, with the ``needed`` ones among them."""

    @abstractmethod
    def remove(self) -> None:
        """Remove all that lies here, a single file too; nobody sees a part of an artifact."""
