"""How long a study takes on some workers: its steps, simulated as the pool hands workers out.

List scheduling (Graham, 1966): whoever is free takes the most urgent call, and of equally urgent ones the first.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from flows.graph import Graph, Node

URGENCY = {"tokenise": 3, "average": 2, "rank": 1}
"""As the stages ask ``WorkerPool.run``; the others are not urgent."""
DRIVER_STAGES = ("aggregate", "track")
"""Stages that take no worker."""
SHARED = 0.82
"""The share of λ's training that several workers divide: two of them were 1.7 times as fast (docs/performance.md)."""


@dataclass(frozen=True)
class Makespan:
    """When the last step ends, and what bounds that.

    Attributes:
        seconds: from the first step to the last.
        chain: the longest chain of steps that wait for each other, on as many workers as can be of use.
        busy: the share of the workers' time that they compute.
    """

    seconds: float
    chain: float
    busy: float


def makespan(
    graph: Graph,
    seconds: Mapping[str, float],
    workers: int,
    *,
    alone: Collection[str] = (),
    submitting: float = 0.0,
    loading: float = 0.0,
) -> Makespan:
    """Simulate a study.

    Args:
        graph: its steps.
        seconds: of one worker for each step, by name; a step that is missing costs nothing.
        workers: how many.
        alone: stages whose steps one worker computes, whatever their parts.
        submitting: seconds of the driver for each step, one after the other.
        loading: seconds of a worker before its first call.
    """
    parts = {node: 1 if node.stage in alone else node.parts for node in graph.nodes}
    run = _Simulation(graph, seconds, parts, workers, submitting, loading)
    ended = run.end()
    return Makespan(ended, _longest_chain(graph, seconds, parts), run.computing / (workers * ended) if ended else 0.0)


def _longest_chain(graph: Graph, seconds: Mapping[str, float], parts: Mapping[Node, int]) -> float:
    until: dict[Node, float] = {}
    for node in graph.nodes:
        own = _on(parts[node], node.stage, seconds.get(node.name, 0.0))
        until[node] = own + max((until[need] for need in node.needs), default=0.0)
    return max(until.values(), default=0.0)


def _on(workers: int, stage: str, seconds: float) -> float:
    """How long a step takes on so many workers at once, where one needs ``seconds``."""
    shared = 1.0 if stage == "average" else SHARED
    return seconds * (1 - shared + shared / workers)


class _Simulation:
    """Events in the order of their time: a step reaches the queue, a call ends."""

    def __init__(
        self,
        graph: Graph,
        seconds: Mapping[str, float],
        parts: Mapping[Node, int],
        workers: int,
        submitting: float,
        loading: float,
    ) -> None:
        self._seconds, self._parts, self._submitting, self._loading = seconds, parts, submitting, loading
        self._missing = {node: len(set(node.needs)) for node in graph.nodes}
        self._dependents: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node in graph.nodes:
            for need in dict.fromkeys(node.needs):
                self._dependents[need].append(node)
        self._calls_left = {node: parts[node] if node.stage == "average" else 1 for node in graph.nodes}
        self._new, self._warm = workers, 0
        self._queue: list[tuple[int, int, Node]] = []
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Node, int | None]] = []
        self._driver_free = 0.0
        self.computing = 0.0

    def end(self) -> float:
        """When the last step ends."""
        now = 0.0
        self._submit(now, [node for node, missing in self._missing.items() if not missing])
        while self._events:
            now = self._events[0][0]
            # All that happens at a moment, before workers are handed out: urgent calls of it go first.
            while self._events and self._events[0][0] == now:
                _, _, node, taken = heapq.heappop(self._events)
                if taken is None:
                    for _ in range(self._calls_left[node]):
                        heapq.heappush(self._queue, (-URGENCY.get(node.stage, 0), next(self._numbers), node))
                else:
                    self._warm += taken
                    self._finish_call(now, node)
            self._hand_out(now)
        return now

    def _submit(self, now: float, nodes: Sequence[Node]) -> None:
        for node in nodes:
            start = self._driver_free = max(now, self._driver_free) + self._submitting
            if node.stage in DRIVER_STAGES:
                self._at(start + self._seconds.get(node.name, 0.0), node, 0)
            elif self._seconds.get(node.name, 0.0) > 0:
                self._at(start, node, None)
            else:
                self._calls_left[node] = 1
                self._at(start, node, 0)

    def _at(self, time: float, node: Node, taken: int | None) -> None:
        """A call of ``node`` that holds so many workers ends then; None where it reaches the queue."""
        heapq.heappush(self._events, (time, next(self._numbers), node, taken))

    def _finish_call(self, now: float, node: Node) -> None:
        self._calls_left[node] -= 1
        if self._calls_left[node]:
            return
        ready = []
        for dependent in self._dependents[node]:
            self._missing[dependent] -= 1
            if not self._missing[dependent]:
                ready.append(dependent)
        self._submit(now, ready)

    def _hand_out(self, now: float) -> None:
        while self._queue and self._warm + self._new:
            _, _, node = heapq.heappop(self._queue)
            own, parts = self._seconds[node.name], self._parts[node]
            if node.stage == "average":
                # Each call is a shard.
                taken, spent = 1, own / parts
                self.computing += spent
            else:
                taken = min(parts, self._warm + self._new)
                spent = _on(taken, node.stage, own)
                self.computing += own
            new = max(0, taken - self._warm)
            self._warm -= taken - new
            self._new -= new
            self._at(now + spent + (self._loading if new else 0.0), node, taken)
