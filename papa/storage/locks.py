"""What runs of one store hold while they work, by locks that the system releases when they die."""

import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from papa.errors import PapaError
from papa.storage.files import Files
from papa.storage.store import Store


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
class StoreUser:
    """A run that uses a store: host and process id, and the study that it computes, if any."""

    process: str
    study: str


@contextmanager
def in_use(store: Store, study: str = "") -> Iterator[Path | None]:
    """Hold a lock for this run alone; yields its file for nodes to see, or None behind a URI."""
    process = f"{socket.gethostname()}-{os.getpid()}"
    with claimed(store, f"run-{process}-{uuid.uuid4().hex[:8]}-{study}") as path:
        yield store.files.folder and path
    Files(store.locks).remove(path.name)


_RUN = re.compile(r"run-(?P<process>.+?-\d+)-[0-9a-f]{8}-(?P<study>.*)\.lock")


def users(store: Store) -> list[StoreUser]:
    """Return the runs that use the store, as far as this machine's locks tell."""
    running: list[StoreUser] = []
    locks = Files(store.locks)
    for name in sorted(locks.find()):
        match = _RUN.fullmatch(name)
        if match is None:
            continue
        path = store.locks / name
        try:
            with FileLock(path, blocking=False):
                locks.remove(name)
        except Timeout:
            running.append(StoreUser(match["process"], match["study"]))
    return running


def names_of_users(store: Store) -> str:
    """Return host and process id of the runs that use the store, for a message; "" for none."""
    return ", ".join(user.process for user in users(store))
