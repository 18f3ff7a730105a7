"""Artifacts behind a URI.

::

    <address>/<digest>/<file>   the data of one publication
    <address>/metadata.json     put last, and only where there is none; names the digest that counts

So an artifact is complete if and only if its metadata is there. Two writers of one address never mix: each writes
under its own digest, the store lets one of them put the metadata, and the other adopts what is in place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from papa.errors import ArtifactError
from papa.storage.filesystem import filesystem, put_new, read, storage_errors, without_bucket
from papa.storage.metadata import METADATA, parse_metadata


class RemoteArtifact:
    """The artifact at ``address``, published or not.

    Args:
        address: its URI.

    Raises:
        ArtifactError: here and in every method: the store cannot be used; the message says why and what to do.
        TransientError: likewise: the store does not answer.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._files, self._root = filesystem(address)

    def metadata(self) -> bytes | None:
        """The bytes of its metadata; None where it is not published."""
        with storage_errors(self.address):
            return read(self._files, f"{self._root}/{METADATA}")

    def publish(self, folder: Path, metadata: Mapping[str, Any]) -> None:
        """Put the files that ``metadata`` lists, from ``folder``, then the metadata; adopt what another put first."""
        names, digest = list(metadata["files"]), metadata["digest"]
        with storage_errors(self.address):
            self._files.put([str(folder / name) for name in names], [self._data(digest, name) for name in names])
            if not put_new(self._files, f"{self._root}/{METADATA}", _as_json(metadata)):
                self._withdraw(digest)

    def download(self, metadata: Mapping[str, Any], folder: Path) -> None:
        """Get the files that ``metadata`` lists into ``folder``.

        Raises:
            ArtifactError: one is missing.
        """
        names, digest = list(metadata["files"]), metadata["digest"]
        with storage_errors(self.address):
            try:
                self._files.get([self._data(digest, name) for name in names], [str(folder / name) for name in names])
            except FileNotFoundError as error:
                if without_bucket(error):
                    raise
                raise ArtifactError(
                    f"{self.address} is damaged ({METADATA} is there, a file under {digest[:12]}… is missing): "
                    f"delete {self.address} and run again"
                ) from None

    def remove(self) -> None:
        """Remove the metadata first, so that nobody takes it for complete, then all data."""
        with storage_errors(self.address):
            for path in (f"{self._root}/{METADATA}", self._root):
                with suppress(FileNotFoundError):
                    self._files.rm(path, recursive=True)

    def _data(self, digest: str, name: str) -> str:
        return f"{self._root}/{digest}/{name}"

    def _withdraw(self, digest: str) -> None:
        """Remove this writer's data, unless they are what the winner put, too."""
        winner = self.metadata()
        if winner is not None and parse_metadata(winner, self.address)["digest"] != digest:
            with suppress(FileNotFoundError):
                self._files.rm(f"{self._root}/{digest}", recursive=True)


@dataclass(frozen=True)
class StoredFile:
    """A file in a store.

    Attributes:
        path: below the address that was asked, with slashes.
        size: in bytes.
        modified: when it was written, in seconds since 1970.
    """

    path: str
    size: int
    modified: float


def stored_below(uri: str) -> list[StoredFile]:
    """Every object below a URI, in one flat listing."""
    files, root = filesystem(uri)
    with storage_errors(uri):
        found = files.find(root, detail=True)
    return [
        StoredFile(path.removeprefix(f"{root}/"), entry["size"], _modified(entry))
        for path, entry in found.items()
        if path.startswith(f"{root}/") and entry["type"] == "file"
    ]


def published_below(uri: str) -> list[str]:
    """The names of the complete artifacts directly below a URI, sorted."""
    return sorted(
        folder
        for folder, _, name in (file.path.rpartition("/") for file in stored_below(uri))
        if name == METADATA and folder and "/" not in folder
    )


def metadata_below(uri: str) -> dict[str, bytes]:
    """The bytes of the metadata of every complete artifact directly below a URI, by name."""
    files, root = filesystem(uri)
    paths = {f"{root}/{name}/{METADATA}": name for name in published_below(uri)}
    with storage_errors(uri):
        # All at once; one that is removed meanwhile is left out.
        found = files.cat(list(paths), on_error="omit") if paths else {}
    return {paths[path]: data for path, data in found.items()}


def _as_json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _modified(entry: Mapping[str, Any]) -> float:
    """When an object was written; now where its filesystem does not tell."""
    moment = entry.get("LastModified") or entry.get("mtime") or entry.get("last_modified") or time.time()
    return moment.timestamp() if isinstance(moment, datetime) else float(moment)
