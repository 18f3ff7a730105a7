"""The artifact store: all that a study makes, in a folder or behind a URI.

::

    <store>/papa-store.json            says that it is one
    <store>/artifacts/<stage>/<key>/   one artifact a finished step
    <root>/studies/<name>/             a study's results, for people
    <root>/mlflow.db, mlartifacts/     MLflow's runs
    <root>/scratch/                    what is only needed while a step runs
    <root>/locks/                      held while a step or a study runs

In a folder, root is the store itself. Behind a URI such as ``s3://bucket/prefix`` lie the artifacts
alone, for every machine; each keeps a root of its own in its cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from papa.errors import ArtifactError, DamagedError, PapaError
from papa.files import cache_folder
from papa.storage.artifacts import (
    ArtifactReference,
    damaged,
    digest_of,
    metadata_below,
    read_metadata,
)
from papa.storage.files import Address, Files, endpoint, refuse_links

MARKER = "papa-store.json"
FORMAT = 3
_PLACES = ("artifacts", "studies", "scratch", "locks", "mlflow.db", "mlartifacts")


class Store:
    """The places in a store: a folder, made when something is written to it, or a URI that fsspec
    knows; ``root`` is the store's folder on this machine.
    """

    def __init__(self, address: Address) -> None:
        self.files = Files(address)
        self.address = self.files.address
        self.root = self.files.folder or cache_folder() / "stores" / _local_name(self.address)
        self.artifacts = f"{self.address}/artifacts"
        self.scratch, self.locks = self.root / "scratch", self.root / "locks"
        self.mlflow_database = self.root / "mlflow.db"
        self.mlflow_artifacts = self.root / "mlartifacts"
        self.is_remote = self.files.folder is None

    def study(self, name: str) -> Path:
        """Where the results of a study lie."""
        return self.root / "studies" / name

    def folder(self, stage: str, key: str) -> str:
        """The address of a step's artifact, finished or not."""
        return f"{self.artifacts}/{stage}/{key}"

    def metadata(self, stage: str) -> dict[str, dict[str, Any]]:
        """What every finished artifact of a stage says of itself, by key."""
        return metadata_below(f"{self.artifacts}/{stage}")

    def reference(self, stage: str, key: str) -> ArtifactReference:
        """The reference to a step's finished artifact."""
        return ArtifactReference(self.folder(stage, key), digest_of(self._read(stage, key)))

    def _read(self, stage: str, key: str) -> dict[str, Any]:
        found = read_metadata(address := self.folder(stage, key))
        if (found.get("stage"), found.get("key")) != (stage, key):
            raise DamagedError(f"{address} holds another step's artifact", address)
        return found

    def damage(self, stage: str, key: str) -> DamagedError | None:
        """What keeps the step's artifact from being used, its absence too; None where its files
        have their sizes.
        """
        address = self.folder(stage, key)
        try:
            metadata = self._read(stage, key)
        except DamagedError as error:
            return error
        files = Files(address).find(metadata["data"])
        for name, size in metadata["sizes"].items():
            if (found := files.get(name, ("no such file", 0))[0]) != size:
                return damaged(f"{name} is damaged (expected {size} bytes, found {found})", address)
        return None

    def check(self) -> None:
        """Check that the store answers, and that no link leads out of it."""
        studies = self.root / "studies"
        below = (*studies.glob("*"), *studies.glob("*/*"), *Path(self.artifacts).glob("*"))
        for path in (*(self.root / name for name in _PLACES), *below):
            refuse_links(path, path)
        self.is_marked()

    def is_marked(self) -> bool:
        """Whether the address says that it is a store."""
        if (data := self.files.read(MARKER)) is None:
            return False
        try:
            found = json.loads(data)["format"]
        except (ValueError, TypeError, KeyError):
            found = f"'{data[:20].decode(errors='replace')}'"
        if found != FORMAT:
            raise ArtifactError(
                f"{self.address} is a store of format {found}, this PAPA knows format {FORMAT}: "
                "use the version that made it, or give another store and run its studies again"
            )
        return True

    def check_marked(self) -> None:
        """Make sure that the address says that it is a store."""
        if not self.is_marked():
            raise ArtifactError(
                f"{self.address} is no store of PAPA ({MARKER} is missing): give with --store the "
                "one that 'papa run' used, or run a study first"
            )

    def make(self) -> None:
        """Make the store, unless other things than MLflow's runs and hidden files lie there, and
        its folder on this machine; check that artifacts can be written.
        """
        self.check()
        for path in self.mlflow_artifacts.rglob("*"):
            refuse_links(path, path)
        with Files(self.root).used(""):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.is_marked():
            ignored = (".", MARKER, "mlflow.db", "mlartifacts")
            others = [name for name in self.files.find() if not name.startswith(ignored)]
            # Another run may have made it meanwhile.
            if others and not self.is_marked():
                raise ArtifactError(
                    f"{self.address} holds other things and no PAPA store ({MARKER} is missing): "
                    "give a new or empty folder, or another prefix, with --store"
                )
            document = {"what": "a store of PAPA", "format": FORMAT}
            self.files.write(MARKER, json.dumps(document).encode())
        self.files.write(name := f".{uuid.uuid4().hex}", b"")
        self.files.remove(name)
        self.scratch.mkdir(parents=True, exist_ok=True)


def _local_name(uri: str) -> str:
    """A name for a URI that a person recognises and that no other URI, nor the same one at another
    S3-compatible server, has.
    """
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", uri.partition("://")[2]).strip("-.")[-80:]
    return f"{readable}-{hashlib.sha256(f'{endpoint()} {uri}'.encode()).hexdigest()[:16]}"


@contextmanager
def claimed(
    store: Store,
    what: str,
    waits: Callable[[], None] = lambda: None,
    given_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold ``what`` while the block runs, by a lock on a file in the store's root; while another
    run holds it, ``waits`` is called once, and ``given_up`` until it is True.
    """
    store.locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(store.locks / f"{what}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        waits()
        try:
            lock.acquire(poll_interval=0.5, cancel_check=given_up)
        except Timeout:
            raise PapaError(f"this run ended while another worked on {what}: run again") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def in_use(store: Store) -> Iterator[Path | None]:
    """Hold a lock of this run's own while the block runs; yields its file, by which a node knows
    that it sees the store, or None where that is behind a URI.
    """
    store.locks.mkdir(parents=True, exist_ok=True)
    path = store.locks / f"run-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.lock"
    with FileLock(path):
        yield None if store.is_remote else path
    path.unlink(missing_ok=True)


def users(store: Store) -> list[str]:
    """The runs that use the store, as far as this machine's locks tell: host and process id."""
    found = []
    for path in store.locks.glob("run-*.lock"):
        try:
            with FileLock(path, blocking=False):
                path.unlink(missing_ok=True)
        except Timeout:
            found.append(path.stem.removeprefix("run-").rpartition("-")[0])
    return found
