"""What runs of one store hold while they work, by locks that the system releases when they die."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from papa.errors import PapaError
from papa.storage.store import Store


@contextmanager
def claimed(
    store: Store,
    what: str,
    waits: Callable[[], None] = lambda: None,
    given_up: Callable[[], bool] = lambda: False,
) -> Iterator[Path]:
    """Hold ``what`` while the block runs, by a lock on a file in the store's root, which it yields;
    while another run holds it, ``waits`` is called once, and ``given_up`` until it is True.
    """
    path = store.locks / f"{what}.lock"
    try:
        (lock := FileLock(path)).acquire(blocking=False)
    except Timeout:
        waits()
        try:
            lock.acquire(poll_interval=0.5, cancel_check=given_up)
        except Timeout:
            raise PapaError(f"this run ended while another worked on {what}: run again") from None
    try:
        yield path
    finally:
        lock.release()


@contextmanager
def in_use(store: Store) -> Iterator[Path | None]:
    """Hold a lock of this run's own; yields its file for nodes to see, or None behind a URI."""
    own = f"run-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    with claimed(store, own) as path:
        yield store.files.folder and path
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
