"""Two runs at once on one store: whoever starts a step first makes its artifact, the other waits and takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from papa.errors import PapaError
from tasks.store import Store

_POLL_SECONDS = 0.5


@contextmanager
def claimed(
    store: Store, what: str, waits: Callable[[], None] = lambda: None, given_up: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold ``what`` while the block runs, by a lock on a file; a process that is gone holds nothing.

    Runs meet where they share the store's root: on one machine, or in one folder. Behind a URI runs on two machines
    may make the same artifact; what is published first stays.

    Args:
        store: whose.
        what: a step's stage and key, or a study.
        waits: called once where another holds it.
        given_up: asked again and again while another holds it; True ends the waiting.

    Raises:
        PapaError: it was given up.
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
