"""The artifact store: all that a study makes, in a folder or behind a URI.

::

    <store>/papa-store.json            says that it is one
    <store>/artifacts/<stage>/<key>/   one artifact a finished step
    <store>/runs/                      which studies use the store just now
    <root>/studies/<name>/             a study's results, for people
    <root>/mlflow.db, mlartifacts/     MLflow's runs
    <root>/scratch/                    what is only needed while a step runs
    <root>/locks/                      held while a step runs

In a folder, root is the store itself. Behind a URI such as ``s3://bucket/prefix`` lie the artifacts
alone, for every machine; each keeps a root of its own in its cache.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from papa.errors import ArtifactError, DamagedError, PapaError
from papa.processes import Process
from papa.storage.artifacts import ArtifactReference, damaged, metadata_below, read_metadata
from papa.storage.files import Address, Files, StoredFile, cache_folder, local_name, refuse_links

MARKER = "papa-store.json"
FORMAT = 2
"""Of stores; in format 1 the data of artifacts in folders lay beside their metadata."""
_PLACES = ("artifacts", "runs", "studies", "scratch", "locks", "mlflow.db", "mlartifacts")
_SILENT_SECONDS = 24 * 3600.0
"""After so long without a word a process of another machine is taken for killed."""
_POLL_SECONDS = 0.5


class Store:
    """The places in a store: a folder, made when something is written to it, or a URI that fsspec
    knows; ``root`` is the store's folder on this machine.
    """

    def __init__(self, address: Address) -> None:
        self.files = Files(address)
        self.address = self.files.address
        self.root = self.files.folder or cache_folder() / "stores" / local_name(self.address)
        self.artifacts, self.runs = f"{self.address}/artifacts", f"{self.address}/runs"
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

    def metadata(self, stage: str) -> list[dict[str, Any]]:
        """What every finished artifact of a stage says of itself."""
        return [*metadata_below(f"{self.artifacts}/{stage}").values()]

    def reference(self, stage: str, key: str) -> ArtifactReference:
        """The reference to a step's finished artifact."""
        return ArtifactReference(self.folder(stage, key), self._read(stage, key)["digest"])

    def _read(self, stage: str, key: str) -> dict[str, Any]:
        found = read_metadata(address := self.folder(stage, key))
        if (found.get("stage"), found.get("key")) != (stage, key):
            raise DamagedError(f"{address} holds another step's artifact", address)
        return found

    def damage(self, stage: str, key: str) -> DamagedError | None:
        """What keeps the step's artifact from being used, its absence too; None where its files
        have their sizes.
        """
        try:
            metadata = self._read(stage, key)
        except DamagedError as error:
            return error
        address = self.folder(stage, key)
        sizes = {file.path: file.size for file in Files(address).find(metadata["digest"])}
        for name, size in metadata["sizes"].items():
            if sizes.get(name) != size:
                told = f"expected {size} bytes, found {sizes.get(name, 'no such file')}"
                return damaged(f"{name} is damaged ({told})", address)
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
            raise ArtifactError(
                f"{self.address}/{MARKER} is damaged: if this is a PAPA store, "
                f'write {{"format": {FORMAT}}} into it'
            ) from None
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
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ArtifactError(
                f"the store's folder {self.root} cannot be made ({error.strerror}): give another "
                "with --store, or by PAPA_CACHE where the store is a URI"
            ) from None
        if not self.is_marked():
            ignored = (".", MARKER, "mlflow.db", "mlartifacts")
            others = [file for file in self.files.find() if not file.path.startswith(ignored)]
            # Another run may have made it meanwhile.
            if others and not self.is_marked():
                raise ArtifactError(
                    f"{self.address} holds other things and no PAPA store ({MARKER} is missing): "
                    "give a new or empty folder, or another prefix, with --store"
                )
            document = {"what": "a store of PAPA", "format": FORMAT}
            self.files.write(MARKER, json.dumps(document).encode(), new=True)
        name = f"runs/.{uuid.uuid4().hex}"
        self.files.write(name, b"")
        self.files.remove(name)
        self.scratch.mkdir(parents=True, exist_ok=True)


@contextmanager
def claimed(
    store: Store,
    what: str,
    waits: Callable[[], None] = lambda: None,
    given_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold ``what`` while the block runs, by a lock on a file, which a process that is gone does
    not hold; while another holds it, ``waits`` is called once, and ``given_up`` until it is True.

    Runs meet where they share the store's root: on one machine, or in one folder. Behind a URI runs
    on two machines may make the same artifact; what is published first stays.
    """
    store.locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(store.locks / f"{what}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        waits()
        try:
            lock.acquire(poll_interval=_POLL_SECONDS, cancel_check=given_up)
        except Timeout:
            raise PapaError(f"this run ended while another worked on {what}: run again") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def announced(store: Store) -> Iterator[Callable[[], None]]:
    """Say that this process uses the store while the block runs, and again with each call of what
    is yielded, until it is taken back.
    """
    name = f"runs/{Process.this()}"

    def again() -> None:
        with suppress(PapaError):
            if store.files.read(name) is not None:
                store.files.write(name, b"")

    store.files.write(name, b"")
    try:
        yield again
    finally:
        no_longer_announced(store)


def no_longer_announced(store: Store) -> None:
    """Take back that this process uses the store; one that does not answer is left as it is."""
    with suppress(PapaError):
        store.files.remove(f"runs/{Process.this()}")


def users(store: Store) -> dict[StoredFile, bool]:
    """The files of processes that said they use the store, and whether each runs: on this machine
    as the system says, which a clock that was set does not change, on others those that said so
    within a day.
    """
    found = {}
    for file in store.files.find("runs"):
        process, age = Process.parse(file.path), time.time() - file.modified
        found[file] = not process.gone if process and process.here else age < _SILENT_SECONDS
    return found
