"""Artifacts behind a URI.

::

    <address>/<digest>/<file>   the data of one publication
    <address>/metadata.json     put last, and only where there is none; names the digest that counts

So an artifact is complete if and only if its metadata is there. Two writers of one address never
mix: each writes under its own digest, the store lets one of them put the metadata, and the other
adopts what is in place. What is read is fetched into this machine's cache first.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock
from fsspec import AbstractFileSystem

from papa.errors import ArtifactError, DamagedError
from papa.storage.cache import cache_folder, copies_of, copy_of, local_name, scratch_folder
from papa.storage.filesystem import (
    filesystem,
    in_time,
    put_new,
    read,
    storage_errors,
    without_bucket,
)
from papa.storage.interface import ArtifactStore, StoredFile
from papa.storage.local import LocalStore
from papa.storage.metadata import DIGEST, METADATA, check_files, metadata_bytes, parse_metadata

_ANSWER_SECONDS = 15.0


class RemoteStore(ArtifactStore):
    """What lies behind a URI that fsspec knows."""

    killed = re.compile(rf"({DIGEST}/{DIGEST})/.+")

    @property
    def machine_folder(self) -> Path:
        return cache_folder() / "stores" / local_name(self.address)

    @property
    def machine_scratch(self) -> Path:
        return cache_folder() / "scratch"

    @contextmanager
    def _opened(self) -> Iterator[tuple[AbstractFileSystem, str]]:
        """The filesystem and the path of this address; what it raises becomes one sentence."""
        files, root = filesystem(self.address)
        with storage_errors(self.address):
            yield files, root

    def check(self, *, write: bool) -> None:
        """Ask for an object that is not there; with ``write`` put one and remove it."""
        name = f".papa-{uuid.uuid4().hex}"
        with self._opened() as (files, root):

            def ask() -> None:
                if write:
                    files.pipe_file(f"{root}/{name}", b"papa")
                    files.rm_file(f"{root}/{name}")
                else:
                    read(files, f"{root}/{name}")

            in_time(_ANSWER_SECONDS, ask)

    def read(self, name: str) -> bytes | None:
        with self._opened() as (files, root):
            return read(files, f"{root}/{name}")

    def write(self, name: str, data: bytes) -> None:
        with self._opened() as (files, root):
            files.pipe_file(f"{root}/{name}", data)

    def touch(self, name: str) -> None:
        self.write(name, b"")

    def files(self, below: str = "") -> list[StoredFile]:
        with self._opened() as (files, root):
            folder = f"{root}/{below}".rstrip("/")
            found = files.find(folder, detail=True)
        return [
            StoredFile(path.removeprefix(f"{folder}/"), entry["size"], _modified(entry))
            for path, entry in found.items()
            if path.startswith(f"{folder}/") and entry["type"] == "file"
        ]

    def complete(self) -> list[str]:
        found = (file.path.rpartition("/") for file in self.files())
        return sorted(
            folder for folder, _, name in found if name == METADATA and folder and "/" not in folder
        )

    def metadata_below(self) -> dict[str, bytes]:
        names = self.complete()
        with self._opened() as (files, root):
            paths = {f"{root}/{name}/{METADATA}": name for name in names}
            # All at once; one that is removed meanwhile is left out.
            found = files.cat(list(paths), on_error="omit") if paths else {}
        return {paths[path]: data for path, data in found.items()}

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        with scratch_folder() as scratch:
            yield scratch

    def publish(self, scratch: Path, metadata: Mapping[str, Any]) -> None:
        """Put the data, then the metadata; adopt what another put first."""
        names, digest = list(metadata["files"]), metadata["digest"]
        with self._opened() as (files, root):
            files.put(
                [str(scratch / name) for name in names],
                [f"{root}/{digest}/{name}" for name in names],
            )
            if put_new(files, f"{root}/{METADATA}", metadata_bytes(metadata)):
                return
            winner = read(files, f"{root}/{METADATA}")
            # Its data may be the same.
            if winner is not None and parse_metadata(winner, self.address)["digest"] != digest:
                with suppress(FileNotFoundError):
                    files.rm(f"{root}/{digest}", recursive=True)

    def inspect(self) -> dict[str, Any]:
        """The metadata alone; data are checked when they are fetched."""
        return parse_metadata(self.read(METADATA), self.address)

    def fetch(self, digest: str | None) -> Path:
        """A copy of this content, downloaded once a machine, and again where it is damaged."""
        copy = copy_of(self.address, digest or self.inspect()["digest"])
        here = LocalStore(str(copy))
        if not here.is_sound():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(copy.with_suffix(".lock")):
                if not here.is_sound():
                    with self._downloaded(digest) as scratch:
                        here.remove()
                        scratch.rename(copy)
        return copy

    @contextmanager
    def borrow(self, needed: Iterable[str]) -> Iterator[Path]:
        with self._downloaded(None, needed) as scratch:
            yield scratch

    @contextmanager
    def _downloaded(self, expected: str | None, needed: Iterable[str] = ()) -> Iterator[Path]:
        """A scratch folder with a verified copy of the artifact, to be renamed."""
        metadata = self.inspect()
        names, digest = list(metadata["files"]), metadata["digest"]
        if expected is not None and digest != expected:
            raise ArtifactError(
                f"{self.address} holds {digest[:12]}, expected {expected[:12]}: it was made again "
                "meanwhile, run again"
            )
        with scratch_folder() as scratch:
            with self._opened() as (files, root):
                try:
                    files.get(
                        [f"{root}/{digest}/{name}" for name in names],
                        [str(scratch / name) for name in names],
                    )
                except FileNotFoundError as error:
                    if without_bucket(error):
                        raise
                    raise DamagedError(
                        f"{self.address} is damaged ({METADATA} is there, a file under "
                        f"{digest[:12]}… is missing)",
                        self.address,
                    ) from None
            (scratch / METADATA).write_bytes(metadata_bytes(metadata))
            check_files(scratch, self.address, needed)
            yield scratch

    def remove(self) -> None:
        """Remove the metadata first, so that nobody takes it for complete, then data and copies."""
        with self._opened() as (files, root):
            for path in (f"{root}/{METADATA}", root):
                with suppress(FileNotFoundError):
                    files.rm(path, recursive=True)
        shutil.rmtree(copies_of(self.address), ignore_errors=True)


def _modified(entry: Mapping[str, Any]) -> float:
    """When an object was written; now where its filesystem does not tell."""
    moment = (
        entry.get("LastModified") or entry.get("mtime") or entry.get("last_modified") or time.time()
    )
    return moment.timestamp() if isinstance(moment, datetime) else float(moment)
