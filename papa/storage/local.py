"""Artifacts in folders of this machine, or of a disk that machines share.

::

    <address>/<file>           the data
    <address>/metadata.json    their digests

Both are written aside and appear in one rename, so an artifact is complete if and only if its
metadata is there.
"""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from papa.errors import ArtifactError
from papa.storage.atomic import MARK, aside, scratch_beside, sync, sync_below, write_atomically
from papa.storage.interface import ArtifactStore, StoredFile
from papa.storage.metadata import DIGEST, METADATA, bytes_of, check_files, metadata_bytes


class LocalStore(ArtifactStore):
    """What lies in a folder."""

    killed = re.compile(rf"(\.+{DIGEST}(?:\.{MARK})+)/.+")

    @property
    def machine_folder(self) -> Path:
        return Path(self.address)

    @property
    def machine_scratch(self) -> None:
        return None

    def check(self, *, write: bool) -> None:
        """A folder answers by itself: the first read or write says what is wrong."""

    def read(self, name: str) -> bytes | None:
        try:
            return bytes_of(self.machine_folder / name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ArtifactError(
                f"{self.address}/{name} cannot be read ({error.strerror}): check its rights, or "
                "give another store"
            ) from None

    def write(self, name: str, data: bytes) -> None:
        with self._writing():
            write_atomically(self._place_for(name), data)

    def touch(self, name: str) -> None:
        with self._writing():
            self._place_for(name).touch()

    def _place_for(self, name: str) -> Path:
        path = self.machine_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ArtifactError(
                f"the store {self.address} cannot be written ({error.strerror}): give another "
                "folder with --store"
            ) from None

    def files(self, below: str = "") -> Iterator[StoredFile]:
        root = self.machine_folder / below
        for path in () if below and root.is_symlink() else root.rglob("*"):
            with suppress(FileNotFoundError):
                status = path.lstat()
                if not stat.S_ISDIR(status.st_mode):
                    yield StoredFile(str(path.relative_to(root)), status.st_size, status.st_mtime)

    def complete(self) -> list[str]:
        found = (path.parent.name for path in self.machine_folder.glob(f"*/{METADATA}"))
        return sorted(name for name in found if name[0] != ".")

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        with scratch_beside(self.machine_folder) as scratch:
            yield scratch

    def publish(self, scratch: Path, metadata: Mapping[str, Any]) -> None:
        (scratch / METADATA).write_bytes(metadata_bytes(metadata))
        sync_below(scratch)
        try:
            scratch.rename(self.machine_folder)
        except OSError:
            if self.read(METADATA) is None:
                # What lies there without metadata is no artifact.
                self.remove()
                scratch.rename(self.machine_folder)
        sync(self.machine_folder.parent)

    def inspect(self) -> dict[str, Any]:
        return check_files(self.machine_folder, self.address)

    def fetch(self, digest: str | None) -> Path:
        """The folder itself, unchecked."""
        return self.machine_folder

    @contextmanager
    def borrow(self, needed: Iterable[str]) -> Iterator[Path]:
        check_files(self.machine_folder, self.address, needed)
        yield self.machine_folder

    def remove(self) -> None:
        folder = self.machine_folder
        with self._writing(), suppress(FileNotFoundError):
            if folder.is_symlink() or not folder.is_dir():
                folder.unlink()
                return
            gone = aside(folder)
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
