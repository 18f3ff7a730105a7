"""What runs of one store hold while they work, by locks that the system releases when they die.

Locks tell nothing to other machines where the store lies behind a URI: there each run has a file,
which it writes again every ``_RENEWAL_SECONDS``.
"""

import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from papa.errors import PapaError
from papa.storage.files import Files
from papa.storage.store import Store

_RUNS = "runs"
"""The folder behind a URI with a file for each run, which has the name of the run's lock."""
_RENEWAL_SECONDS = 60.0
_SILENT_SECONDS = 300.0
"""A run whose file is older has died: clocks may differ, and a server be away for a while."""


@contextmanager
def claimed(
    store: Store,
    name: str,
    waits: Callable[[], None] = lambda: None,
    given_up: Callable[[], bool] = lambda: False,
) -> Iterator[Path]:
    """Hold the lock ``name`` while the block runs, on a file in the store's root, which it yields;
    while another run holds it, ``waits`` is called once, and ``given_up`` until it is True.
    """
    path = store.locks / f"{name}.lock"
    # Else the umask of whoever comes first decides whether others of a group can lock it.
    Files(store.locks).write(path.name, b"")
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        waits()
        try:
            lock.acquire(poll_interval=0.5, cancel_check=given_up)
        except Timeout:
            raise PapaError(f"this run ended while another worked on {name}: run again") from None
    try:
        yield path
    finally:
        lock.release()


@dataclass(frozen=True)
class StoreRun:
    """A run that uses a store: host and process id, and the study that it computes, if any."""

    process: str
    study: str


@contextmanager
def in_use(store: Store, study: str = "") -> Iterator[Path | None]:
    """Hold a lock for this run alone; yields its file for nodes to see, or None behind a URI."""
    name = f"run-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}-{study}"
    with claimed(store, name) as path, _announced(store, path.name):
        yield path if store.files.folder else None
    Files(store.locks).remove(path.name)


@contextmanager
def _announced(store: Store, name: str) -> Iterator[None]:
    """Behind a URI, rewrite the run's file regularly while the block runs, so that others see that
    it runs; do nothing in a folder.
    """
    if store.files.folder:
        yield
        return

    def write() -> None:
        # Who may only read cannot tell others, and a server may be away for a while.
        with suppress(PapaError):
            store.files.write(f"{_RUNS}/{name}", b"runs\n", replace=True)

    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(_RENEWAL_SECONDS):
            write()

    write()
    renewal = threading.Thread(target=renew, name="renewal of the run's file", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        is_over.set()
        renewal.join()
        _withdraw(store, name)


def _withdraw(store: Store, name: str) -> None:
    """Remove the file of a run behind a URI, if there is one that this user may remove."""
    if not store.files.folder:
        with suppress(PapaError):
            store.files.remove(f"{_RUNS}/{name}")


_RUN = re.compile(r"run-(?P<process>[\w.-]+?-\d+)-[0-9a-f]{8}-(?P<study>[\w.-]*)\.lock")


def active_runs(store: Store) -> list[StoreRun]:
    """Return the runs that use the store: of this machine by their locks; behind a URI, those of
    other machines by their files, up to ``_SILENT_SECONDS`` after one was killed.
    """
    running = {name for name in _named_runs(Files(store.locks)) if _is_locked(store, name)}
    if not store.files.folder:
        for name, modified in _named_runs(Files(f"{store.address}/{_RUNS}")).items():
            if time.time() - modified < _SILENT_SECONDS:
                running.add(name)
            else:
                _withdraw(store, name)
    matches = filter(None, map(_RUN.fullmatch, sorted(running)))
    return [StoreRun(match["process"], match["study"]) for match in matches]


def _named_runs(files: Files) -> dict[str, float]:
    """Return the files that are named after runs, with the time when they were written."""
    return {name: modified for name, (_, modified) in files.find().items() if _RUN.fullmatch(name)}


def _is_locked(store: Store, name: str) -> bool:
    """Return whether a run of this machine lives; remove what is left of one that does not."""
    try:
        with FileLock(store.locks / name, blocking=False):
            Files(store.locks).remove(name)
    except Timeout:
        return True
    _withdraw(store, name)
    return False


def active_processes(store: Store) -> str:
    """Return host and process id of the runs that use the store, for a message; "" for none."""
    return ", ".join(run.process for run in active_runs(store))
