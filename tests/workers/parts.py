"""Work for the workers of the tests; importable where they run."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from papa.errors import NumbersError
from papa.progress import Progress
from papa.storage.artifacts import read_metadata
from papa.workers import WorkerPool
from papa.workers.group import Replicas, WorkerGroup
from tests.flows.processes import PATIENCE_SECONDS

NUMBERS, LAYERS = 6, 6
EXPECTED = [number * number + LAYERS for number in range(NUMBERS)]


class Part:
    """Squares numbers and says which process did; a process that is not the ``leader`` may be made
    to die.
    """

    def __init__(self, *, encoder: Any, leader: int) -> None:
        self.layers, self.leader = encoder.layers, leader

    def square(self, deadly: bool, number: int) -> tuple[int, int]:
        if deadly and os.getpid() != self.leader:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number + self.layers, os.getpid()

    def refuse(self, shared: None, number: int) -> int:
        if os.getpid() != self.leader:
            raise NumbersError("the loss", "use other weights")
        return number


def squares(*, encoder: Any, group: WorkerGroup, progress: Progress) -> list[list[tuple[int, int]]]:
    """Squares by the whole group, then with a call that its helper dies of, then by who is left."""
    with group.replicas(Part, {"leader": os.getpid()}) as replicas:
        helpers_ready(replicas)
        shared = replicas.map("square", False, range(NUMBERS), [1] * NUMBERS)
        deadly = replicas.map("square", True, range(NUMBERS), [1] * NUMBERS)
        after = replicas.map("square", False, range(NUMBERS), [1] * NUMBERS)
    return [shared, deadly, after]


def refused(*, encoder: Any, group: WorkerGroup, progress: Progress) -> list[int]:
    """A call whose helper refuses its part."""
    with group.replicas(Part, {"leader": os.getpid()}) as replicas:
        helpers_ready(replicas)
        return replicas.map("refuse", None, range(NUMBERS), [1] * NUMBERS)


def own_process(*, progress: Progress) -> int:
    """The worker's process id."""
    return os.getpid()


def opened(*, address: str, progress: Progress) -> None:
    """Read an artifact."""
    read_metadata(address)


def kill_and_wait(*, pid: int, progress: Progress) -> None:
    """Kill a process, and take longer than a test does."""
    os.kill(pid, signal.SIGKILL)
    time.sleep(PATIENCE_SECONDS)


def helpers_ready(replicas: Replicas) -> None:
    """Wait until every helper of a group has its replica, or cannot have one."""
    import ray

    coming = list(replicas._coming)
    ray.wait(coming, num_returns=len(coming))


def both_ready(pool: WorkerPool) -> None:
    """Wait until two workers are idle: the second is handed out while the first is held, and both
    answer.
    """
    import ray

    free = pool._started()
    with free.taken(1) as (first,), free.taken(1) as (second,):
        # The pool does not know of a helper that was lost in a group; Ray repeats the call once it
        # is there again.
        ray.get(
            [worker.actor.ready.options(max_task_retries=-1).remote() for worker in (first, second)]
        )
