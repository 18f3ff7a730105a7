"""Work for the workers of the tests; importable where they run."""

from __future__ import annotations

import os
import signal
from typing import Any

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
        helpers_ready(crew)
        together = crew.each("square", False, range(NUMBERS), [1] * NUMBERS)
        deadly = crew.each("square", True, range(NUMBERS), [1] * NUMBERS)
        after = crew.each("square", False, range(NUMBERS), [1] * NUMBERS)
    return [together, deadly, after]


def own_process(*, progress: Progress) -> int:
    """The worker's process id."""
    return os.getpid()


def helpers_ready(crew: Any) -> None:
    """Wait until every helper of a crew has its member, or cannot have one."""
    import ray

    joining = list(crew._joining)
    ray.wait(joining, num_returns=len(joining))


def both_ready(pool: WorkerPool) -> None:
    """Wait until two workers are idle: the second is handed out while the first is held, and both answer."""
    import ray

    members = pool._started()
    with members.taken(1) as (first,), members.taken(1) as (second,):
        # The pool does not know of a helper that was lost in a team; Ray repeats the call once it is there again.
        ray.get([member.actor.ready.options(max_task_retries=-1).remote() for member in (first, second)])
