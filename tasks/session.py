"""What a step may use while it runs: the store, the workers, the settings that only change speed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.workers import WorkerPool
from tasks.store import Store


class Reporter(Protocol):
    """Who is told how far the work is."""

    def running(self, name: str, flops: float) -> AbstractContextManager[Progress]:
        """While the block runs, the work ``name`` is in progress; yields where to tell how far it is."""

    def waits(self, name: str) -> None:
        """Another run works on ``name``; its result is waited for."""

    def again(self, name: str, reason: str) -> None:
        """The work ``name`` failed and will be tried again."""


class Session:
    """What steps share while a study runs. No step reads another's data through it."""

    def __init__(self, store: Store, pool: WorkerPool, execution: ExecutionSpec, reporter: Reporter) -> None:
        self.store = store
        self.pool = pool
        self.execution = execution
        self.reporter = reporter
