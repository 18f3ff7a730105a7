"""Cores of this machine that no worker uses: a worker that computes alone uses them as well.

Each worker of a pool holds a lock on a file of its own while a call runs, which the system releases
where the worker is killed. Whoever computes counts these locks every few batches, so a worker that
begins a call never waits for another one.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout


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


@contextmanager
def map_in_threads(count: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield ``map``, which calls its function in as many threads, of one core each.

    One thread is the calling one, whose number of cores stays what it is.
    """
    if count == 1:
        yield map
        return
    # Imported by commands that load no PyTorch.
    import torch

    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as executor:
        yield executor.map


def _is_locked(path: Path) -> bool:
    try:
        with FileLock(path, blocking=False):
            return False
    except Timeout:
        return True
