"""λ by a group of workers that says which processes found gradients; importable where
workers run.
"""

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
from papa.study.rank import Rank
from papa.study.store import Store
from papa.workers.group import Replicas, WorkerGroup
from tests.workers.parts import helpers_ready


class Watched:
    """Gradients and who found them; a process that is not the ``leader`` dies at its gradient
    number ``deadly``.
    """

    def __init__(self, *, encoder: Any, leader: int, deadly: int, step: Rank, store: Store) -> None:
        self.gradients = step.gradients(encoder=encoder, store=store)
        self.leader, self.deadly, self.found = leader, deadly, 0

    def gradient(self, values: Tensors, part: Part) -> Any:
        self.found += 1
        if self.found == self.deadly and os.getpid() != self.leader:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid(), self.gradients.gradient(values, part)


def watched(
    *, encoder: Any, group: WorkerGroup, progress: Progress, step: Rank, store: Store, deadly: int
) -> tuple[list[list[float]], int]:
    """λ, and how many processes found gradients for it; begins when two are there."""
    processes: set[int] = set()

    def each(replicas: Replicas, values: Tensors, parts: Sequence[Part]) -> list[Any]:
        found = replicas.map("gradient", values, parts, [part.tokens for part in parts])
        processes.update(process for process, _ in found)
        return [gradient for _, gradient in found]

    with group.replicas(
        Watched, {"leader": os.getpid(), "deadly": deadly, "step": step, "store": store}
    ) as replicas:
        helpers_ready(replicas)
        corpus, constants = step.opened(step.found(store))
        lambdas = train_lambda(
            encoder,
            constants,
            corpus,
            step.task,
            step.ranking,
            seed=step.seed,
            of_parts=partial(each, replicas),
            progress=progress,
        )
    return lambdas[-1].tolist(), len(processes)
