"""Work for the workers of the tests; importable where they run."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from papa.progress import Progress
from papa.workers import WorkerPool
from papa.workers.team import Team

NUMBERS = 6


class Part:
    """Squares numbers and tells which process did; a process that is not the ``leader`` may be told to die."""

    def __init__(self, *, encoder: Any, leader: int) -> None:
        self.layers, self.leader = encoder.layers, leader

    def square(self, deadly: bool, number: int) -> tuple[int, int]:
        if deadly and os.getpid() != self.leader:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number + self.layers, os.getpid()


def squares(*, encoder: Any, team: Team, progress: Progress) -> list[list[tuple[int, int]]]:
    """Squares by the whole team, then with a call that its helper dies of, then by who is left."""
    with team.crew(Part, {"leader": os.getpid()}) as crew:
        patience = time.monotonic() + 60
        while True:
            together = crew.each("square", False, range(NUMBERS), [1] * NUMBERS)
            if len({process for _, process in together}) > 1 or time.monotonic() > patience:
                break
        deadly = crew.each("square", True, range(NUMBERS), [1] * NUMBERS)
        after = crew.each("square", False, range(NUMBERS), [1] * NUMBERS)
    return [together, deadly, after]


def own_process(*, progress: Progress) -> int:
    """The worker's process id."""
    return os.getpid()


def both_ready(pool: WorkerPool) -> None:
    """Wait until two workers are idle."""
    run = partial(pool.run, own_process, arguments={})
    patience = time.monotonic() + 120
    while time.monotonic() < patience:
        with ThreadPoolExecutor(2) as executor:
            if len({future.result() for future in [executor.submit(run), executor.submit(run)]}) == 2:
                return
    pytest.fail("no second worker came up")
