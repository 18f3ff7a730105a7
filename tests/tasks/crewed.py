"""λ by a crew that tells which processes found gradients; importable where workers run."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from typing import Any

from papa.probes.joint import Tensors
from papa.probes.minibatches import Part
from papa.progress import Progress
from papa.ranking.learned import train_lambda
from papa.workers.team import Team
from tasks.rank import gradients, opened
from tests.workers.parts import helpers_ready


class Watched:
    """Gradients and who found them; a process that is not the ``leader`` dies at its gradient number ``deadly``."""

    def __init__(self, *, encoder: Any, leader: int, deadly: int, **shared: Any) -> None:
        self.gradients = gradients(encoder=encoder, **shared)
        self.leader, self.deadly, self.found = leader, deadly, 0

    def gradient(self, values: Tensors, part: Part) -> Any:
        self.found += 1
        if self.found == self.deadly and os.getpid() != self.leader:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid(), self.gradients.gradient(values, part)


def watched(
    *, encoder: Any, team: Team, progress: Progress, ranking: Any, deadly: int, **shared: Any
) -> tuple[list[list[float]], int]:
    """λ, and how many processes found gradients for it; begins when two are there."""
    processes: set[int] = set()

    def each(crew: Any, values: Tensors, parts: Sequence[Part]) -> list[Any]:
        found = crew.each("gradient", values, parts, [part.tokens for part in parts])
        processes.update(process for process, _ in found)
        return [gradient for _, gradient in found]

    arguments = {**shared, "leader": os.getpid(), "deadly": deadly, "seed": ranking.seed}
    with team.crew(Watched, arguments) as crew:
        helpers_ready(crew)
        corpus, constants = opened(**shared)
        lambdas = train_lambda(
            encoder, constants, corpus, shared["task"], ranking, of_parts=partial(each, crew), progress=progress
        )
    return lambdas[-1].tolist(), len(processes)
