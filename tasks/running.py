"""Which studies use a store just now: each says so in the store, as one machine cannot see another's processes.

::

    <store>/runs/<process>   written when a study starts and whenever a step of it ends, removed when it ends
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from papa.artifacts import stored_below
from papa.errors import PapaError
from papa.filesystem import filesystem, told
from tasks.store import Store

SILENT_SECONDS = 24 * 3600.0
"""After so long without a word a study is taken for killed."""


@contextmanager
def announced(store: Store, process: str) -> Iterator[Callable[[], None]]:
    """Say that ``process`` uses the store while the block runs, and again with each call of what is yielded.

    Raises:
        ArtifactError: the store cannot be used.
        TransientError: it does not answer.
    """

    def say() -> None:
        if not store.is_remote:
            Path(store.runs).mkdir(parents=True, exist_ok=True)
        with told(store.runs):
            files.pipe_file(f"{root}/{process}", b"")

    def again() -> None:
        with suppress(PapaError):
            say()

    files, root = filesystem(store.runs)
    say()
    try:
        yield again
    finally:
        withdraw(store, process)


def withdraw(store: Store, process: str) -> None:
    """Say no more that ``process`` uses the store; a store that does not answer is left as it is."""
    with suppress(PapaError), told(store.runs):
        files, root = filesystem(store.runs)
        files.rm_file(f"{root}/{process}")


def running(store: Store) -> dict[str, float]:
    """The processes that use the store, and the seconds since each last said so; not those silent for a day."""
    now = time.time()
    ages = {file.path: now - file.modified for file in stored_below(store.runs)}
    return {process: age for process, age in ages.items() if age < SILENT_SECONDS}
