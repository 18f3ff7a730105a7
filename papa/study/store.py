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
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from papa.errors import ArtifactError, DamagedError, PapaError
from papa.processes import Process
from papa.storage.artifacts import (
    Address,
    ArtifactReference,
    inspect,
    is_complete,
    metadata_below,
    read_metadata,
    remove,
)
from papa.storage.atomic import MARK
from papa.storage.cache import cache_folder, local_name
from papa.storage.files import Files, refuse_links
from papa.storage.metadata import Metadata

MARKER = "papa-store.json"
FORMAT = 1
_BEFORE = re.compile(
    rf"\.papa-[0-9a-f]{{32}}|\.{re.escape(MARKER)}\.{MARK}|\.?mlflow\.db.*|mlartifacts"
)
"""What may lie in the root before the marker does: what another run puts for a moment, and MLflow's
runs.
"""
_PLACES = ("artifacts", "runs", "studies", "scratch", "locks", "mlflow.db", "mlartifacts")
SILENT_SECONDS = 24 * 3600.0
"""After so long without a word a study of another machine is taken for killed."""
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

    def __repr__(self) -> str:
        return f"Store({self.address!r})"

    @property
    def is_remote(self) -> bool:
        """Whether its artifacts lie elsewhere than in its folder on this machine."""
        return self.files.folder is None

    def study(self, name: str) -> Path:
        """Where the results of a study lie."""
        return self.root / "studies" / name

    def folder(self, stage: str, key: str) -> str:
        """The address of a step's artifact, finished or not."""
        return f"{self.artifacts}/{stage}/{key}"

    def metadata(self, stage: str) -> list[Metadata]:
        """What every finished artifact of a stage says of itself."""
        found = metadata_below(f"{self.artifacts}/{stage}").values()
        return [document for document in found if document.get("stage") == stage]

    def holds(self, stage: str, key: str) -> bool:
        """Whether the step's artifact is there, and its files have their sizes."""
        return self.damage(stage, key) is None

    def is_there(self, stage: str, key: str) -> bool:
        """Whether something lies where the step's artifact belongs, sound or not."""
        return is_complete(self.folder(stage, key))

    def damage(self, stage: str, key: str) -> DamagedError | None:
        """What keeps the step's artifact from being used, its absence too; None where nothing
        does.
        """
        try:
            self._owned(stage, key, inspect(self.folder(stage, key)))
        except DamagedError as error:
            return error
        return None

    def _owned(self, stage: str, key: str, found: Metadata) -> Metadata:
        if (found.get("stage"), found.get("key")) != (stage, key):
            address = self.folder(stage, key)
            raise DamagedError(f"{address} holds another step's artifact", address)
        return found

    def discard(self, stage: str, key: str) -> None:
        """Remove the step's artifact."""
        remove(self.folder(stage, key))

    def reference(self, stage: str, key: str) -> ArtifactReference:
        """The reference to a step's finished artifact."""
        address = self.folder(stage, key)
        return ArtifactReference(address, self._owned(stage, key, read_metadata(address))["digest"])

    def check(self, *others: Path) -> None:
        """Check that artifacts can be read, before work starts that only reads them, and that no
        link leads out of the store.
        """
        studies = self.root / "studies"
        artifacts = [] if self.is_remote else Path(self.artifacts).glob("*")
        below = (*studies.glob("*"), *studies.glob("*/*"), *artifacts, *others)
        for path in (*(self.root / name for name in _PLACES), *below):
            refuse_links(path, path)
        self.files.check(write=False)

    def make(self) -> None:
        """Make the store and its folder on this machine; check that artifacts can be written."""
        self.check(*self.mlflow_artifacts.rglob("*"))
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.files.check(write=True)
            mark(self.address)
            self.scratch.mkdir(parents=True, exist_ok=True)
            probe = self.scratch / f".writable.{os.getpid()}"
            probe.touch()
            probe.unlink(missing_ok=True)
        except OSError as error:
            other = "set PAPA_CACHE to another folder"
            what = other if self.is_remote else "give another folder with --store"
            raise ArtifactError(
                f"the store {self.root} cannot be written ({error.strerror}): {what}"
            ) from None


def is_marked(address: str) -> bool:
    """Whether ``address`` says that it is a store."""
    data = Files(address).read(MARKER)
    if data is None:
        return False
    try:
        found = json.loads(data)["format"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ArtifactError(
            f"{address}/{MARKER} is damaged: if this is a PAPA store, "
            f'write {{"format": {FORMAT}}} into it'
        ) from None
    if found != FORMAT:
        raise ArtifactError(
            f"{address} is a store of format {found}, this PAPA knows format {FORMAT}: use the "
            "version that made it"
        )
    return True


def check_marked(address: str) -> None:
    """Make sure that ``address`` says that it is a store."""
    if not is_marked(address):
        raise ArtifactError(
            f"{address} is no store of PAPA ({MARKER} is missing): give with --store the one that "
            "'papa run' used, or run a study first"
        )


def mark(address: str) -> None:
    """Make ``address`` say that it is a store; a folder must be there."""
    if not is_marked(address):
        check_is_ours(address)
        content = (json.dumps({"what": "a store of PAPA", "format": FORMAT}) + "\n").encode()
        Files(address).write(MARKER, content)


def check_is_ours(address: str) -> None:
    """Make sure that an unmarked address holds nothing."""
    there = {file.path.partition("/")[0] for file in Files(address).find()}
    # Another run marks before it writes anything else, and may have done so by now.
    if not (all(map(_BEFORE.fullmatch, there)) or is_marked(address)):
        raise ArtifactError(
            f"{address} holds other things and no PAPA store ({MARKER} is missing): "
            "give a new or empty folder, or another prefix, with --store"
        )


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
    this = str(Process.this())
    name = f"runs/{this}"

    def again() -> None:
        with suppress(PapaError):
            if this in words_of(store):
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


def words_of(store: Store) -> dict[str, float]:
    """The processes that said they use the store, and the seconds since each last said so."""
    now = time.time()
    return {file.path: max(0.0, now - file.modified) for file in store.files.find("runs")}


def running(store: Store) -> dict[str, float]:
    """The processes that use the store, and the seconds since each last said so.

    Those silent for a day are left out, unless they are known to run: a step may take longer, and a
    clock may be set.
    """
    ages = words_of(store)
    return {
        process: age for process, age in ages.items() if age < SILENT_SECONDS or _runs_here(process)
    }


def _runs_here(name: str) -> bool:
    process = Process.parse(name)
    return process is not None and process.here and not process.gone
