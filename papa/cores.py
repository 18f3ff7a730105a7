"""Cores of this machine that no worker uses: a worker that computes alone uses them as well.

Each worker of a pool holds a lock on a file of its own while a call runs, which the system releases
where the worker is killed. Whoever computes counts these locks every few batches, so a worker that
begins a call never waits for another one.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from papa.resources import usable_cores

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class WorkerCores:
    """The cores of the workers of one pool on this machine, one each.

    Attributes:
        folder: Holds the workers' lock files; no other pool uses it.
        number: This worker's number in the pool.
        count: How many workers the pool has.
    """

    folder: Path
    number: int
    count: int

    @contextmanager
    def used(self) -> Iterator[None]:
        """Count this worker's core as used while the block runs."""
        global _used
        with FileLock(self.folder / f"{self.number}.lock"):
            _used = self
            try:
                yield
            finally:
                _used = None

    def threads(self) -> int:
        """Return how many threads this worker may compute with: unused cores are shared by the
        others.
        """
        busy = sum(_is_locked(path) for path in self.folder.glob("*.lock"))
        # A worker that was killed, and the one in its place, have a file each.
        return max(1, self.count // max(1, busy))


_used: WorkerCores | None = None
"""Those of the worker whose call runs in this process."""


def free_threads() -> int:
    """Return how many threads the running call may compute with now; 1 outside of a pool."""
    return 1 if _used is None else _used.threads()


def map_in_threads(function: Callable[..., _Result], *arguments: Sequence[Any]) -> list[_Result]:
    """Return what ``map`` of a function yields, with its calls at the same time, each in a thread
    of one core. All have ended when it returns or raises.

    A single call runs in the calling thread, whose number of cores stays what it is. The function
    must not call this one: its calls could wait for threads that wait for them.
    """
    calls = list(zip(*arguments, strict=False))
    if len(calls) == 1:
        return [function(*calls[0])]
    futures = [_threads().submit(function, *call) for call in calls]
    wait(futures)
    return [future.result() for future in futures]


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process. They stay: a new thread has to be given its memory page
    by page, which costs a tenth of the training of λ.
    """
    # Imported by commands that load no PyTorch.
    import torch

    return ThreadPoolExecutor(usable_cores(), initializer=torch.set_num_threads, initargs=(1,))


def _is_locked(path: Path) -> bool:
    try:
        with FileLock(path, blocking=False):
            return False
    except Timeout:
        return True
