"""Several runs on one store: who makes an artifact while others wait, and who is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock, Timeout

from papa.errors import PapaError
from papa.processes import Process
from papa.storage.artifacts import remove
from papa.study.store import Store

_POLL_SECONDS = 0.5


@contextmanager
def claimed(
    store: Store,
    what: str,
    waits: Callable[[], None] = lambda: None,
    given_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold ``what`` while the block runs, by a lock on a file; a process that is gone holds
    nothing.

    Runs meet where they share the store's root: on one machine, or in one folder. Behind a URI runs
    on two machines may make the same artifact; what is published first stays.

    Args:
        waits: called once where another holds it.
        given_up: asked again and again while another holds it; True ends the waiting.
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


SILENT_SECONDS = 24 * 3600.0
"""After so long without a word a study of another machine is taken for killed."""


@contextmanager
def announced(store: Store, process: str) -> Iterator[Callable[[], None]]:
    """Say that ``process`` uses the store while the block runs, and again with each call of what is
    yielded.
    """

    def again() -> None:
        with suppress(PapaError):
            store.backend.touch(f"runs/{process}")

    store.backend.touch(f"runs/{process}")
    try:
        yield again
    finally:
        no_longer_announced(store, process)


def no_longer_announced(store: Store, process: str) -> None:
    """Take back that ``process`` uses the store; a store that does not answer is left as it is."""
    with suppress(PapaError):
        remove(f"{store.runs}/{process}")


def words_of(store: Store) -> dict[str, float]:
    """The processes that said they use the store, and the seconds since each last said so."""
    now = time.time()
    return {file.path: max(0.0, now - file.modified) for file in store.backend.files("runs")}


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
