"""What a step shares with a group of workers, and which processes computed its parts; importable
where workers run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from papa.probes.joint import Tensors
from papa.probes.minibatches import Part
from papa.progress import Progress
from papa.ranking.learned import train_lambda
from papa.ranking.scores.streamed import scores_by
from papa.ranking.value import LossValue
from papa.spec import ExecutionSpec
from papa.study.rank import Rank
from papa.study.score_heads import ScoreHeads
from papa.study.store import Store
from papa.workers.group import WorkerGroup
from tests.workers.parts import helpers_ready


class Watched:
    """What ``made`` makes, and who computed a part with it; a process that is not the ``leader``
    dies at its part number ``deadly``.
    """

    def __init__(
        self, *, encoder: Any, leader: int, deadly: int, made: Callable[..., Any], store: Store
    ) -> None:
        self.made = made(encoder=encoder, store=store)
        self.leader, self.deadly, self.found = leader, deadly, 0

    def call(self, asked: tuple[str, Any], part: Any) -> tuple[int, Any]:
        self.found += 1
        if self.found == self.deadly and os.getpid() != self.leader:
            os.kill(os.getpid(), signal.SIGKILL)
        method, shared = asked
        return os.getpid(), getattr(self.made, method)(shared, part)


@contextmanager
def watched(
    group: WorkerGroup, made: Callable[..., Any], store: Store, deadly: int
) -> Iterator[tuple[Any, Callable[..., list[Any]], set[int]]]:
    """The leader's own replica, what stands in for ``Replicas.map``, and the processes that
    computed; begins when every helper is there.
    """
    processes: set[int] = set()
    arguments = {"leader": os.getpid(), "deadly": deadly, "made": made, "store": store}
    with group.replicas(Watched, arguments) as replicas:
        helpers_ready(replicas)

        def each(method: str, shared: Any, parts: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
            found = replicas.map("call", (method, shared), parts, sizes)
            processes.update(process for process, _ in found)
            return [result for _, result in found]

        yield replicas.own.made, each, processes


def watched_lambda(
    *, encoder: Any, group: WorkerGroup, progress: Progress, step: Rank, store: Store, deadly: int
) -> tuple[list[list[float]], int]:
    """λ, and how many processes found gradients for it."""
    with watched(group, step.gradients, store, deadly) as (_, each, processes):

        def of_parts(values: Tensors, parts: Sequence[Part]) -> list[Any]:
            return each("gradient", values, parts, [part.tokens for part in parts])

        corpus, constants = step.opened(step.found(store))
        lambdas = train_lambda(
            encoder,
            constants,
            corpus,
            step.task,
            step.ranking,
            seed=step.seed,
            of_parts=of_parts,
            progress=progress,
        )
    return lambdas[-1].tolist(), len(processes)


def watched_scores(
    *,
    encoder: Any,
    group: WorkerGroup,
    progress: Progress,
    step: ScoreHeads,
    store: Store,
    deadly: int,
) -> tuple[list[list[float]], int]:
    """The scores of heads, and how many processes valued sets of them."""
    (method,), scratch = step.methods, store.scratch
    with watched(group, step.losses, store, deadly) as (own, each, processes):
        asked = step.asked(encoder, step.found(store), scratch=scratch, execution=ExecutionSpec())
        value = LossValue(own, partial(each, "loss"))
        found = scores_by([method], replace(asked, value=value))
    return found[method].values.tolist(), len(processes)
