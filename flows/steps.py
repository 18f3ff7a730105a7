"""The steps of a study, each submitted to Prefect once those it builds on are done."""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefect.futures import PrefectFuture
from prefect.states import State

from flows.graph import Node
from flows.startup import ReadyStudy
from papa.errors import DamagedError, PapaError
from papa.storage.artifacts import ArtifactReference, read_metadata, remove
from tasks.perform import CACHED, reason, submit
from tasks.step import Session, Step


class StudyError(PapaError):
    """Some cells of a study failed; what the others found is kept."""


class Steps:
    """Submits each step to Prefect once those it builds on are done.

    Prefect's runner could order the steps by their futures, but not share them: a step's key holds the digests of what
    it builds on, and only then is it known which nodes have one key, and so one task run.
    """

    def __init__(self, ready: ReadyStudy, alive: Callable[[], None]) -> None:
        self.session = Session(ready.store, ready.pool, ready.spec.execution, ready.progress, ready.live.epoch)
        self.progress, self.live, self.alive = ready.progress, ready.live, alive
        self.missing = {node: len(set(node.needs)) for node in ready.graph.nodes}
        self.dependents: dict[Node, list[Node]] = defaultdict(list)
        for node in ready.graph.nodes:
            for need in dict.fromkeys(node.needs):
                self.dependents[need].append(node)
        self.by_key: dict[str, PrefectFuture[Any]] = {}
        self.steps: dict[Node, Step] = {}
        self.states: dict[Node, State[Any]] = {}
        self.running: dict[PrefectFuture[Any], list[Node]] = {}
        self.ended: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
        self.done: dict[Node, ArtifactReference] = {}
        self.failures: dict[str, str] = {}
        self.begun: set[Node] = set()
        self.remade: set[str] = set()
        self.repeated: set[Node] = set()

    def run(self) -> dict[Node, ArtifactReference]:
        """Run everything that can run.

        Raises:
            StudyError: something could not.
        """
        self._submit([node for node, missing in self.missing.items() if not missing])
        while self.running:
            # Prefect's own as_completed looks at every running step each time.
            finished = self._finish(self.ended.get())
            self.alive()
            self._submit(finished)
        if self.failures:
            raise StudyError(_failure_sentence(self.failures))
        return self.done

    def _submit(self, nodes: Sequence[Node]) -> None:
        """Submit steps all of whose inputs are done."""
        ready = list(nodes)
        for node in ready:
            self.begun.add(node)
            try:
                step = node.step([self.done[need] for need in node.needs])
                self.steps[node] = step
                future = self.by_key.get(step.key)
                if future is None:
                    future = submit(step, self.session, [self.states[need] for need in node.needs])
                    self.by_key[step.key] = future
            except PapaError as error:
                again = self._again([node], error)
                if again is None:
                    self._fail(node, str(error))
                else:
                    # Taken in by the loop.
                    ready += again
                continue
            if future not in self.running:
                self.running[future] = []
                future.add_done_callback(self.ended.put)
            self.running[future].append(node)

    def _finish(self, future: PrefectFuture[Any]) -> list[Node]:
        """Take in what a task run found; returns the nodes that can start by it."""
        result, state = future.result(raise_on_failure=False), future.state
        nodes, ready = self.running.pop(future), list[Node]()
        again = self._again(nodes, result)
        if again is not None:
            return again
        for node in nodes:
            if not state.is_completed():
                self._fail(node, reason(result))
                continue
            step = self.steps[node]
            done = self.done[node] = self.session.store.reference(step.stage, step.key)
            self.states[node] = state
            self.progress.finished(node.name, cached=state.name == CACHED)
            self.live.finished(node.name, done)
            if node.stage == "tokenise":
                for sentence in read_metadata(done.path)["notes"].get("warnings", ()):
                    self.progress.warned(node.name, sentence)
            for dependent in self.dependents[node]:
                self.missing[dependent] -= 1
                if not self.missing[dependent] and dependent not in self.begun:
                    ready.append(dependent)
        return ready

    def _again(self, nodes: Sequence[Node], error: object) -> list[Node] | None:
        """Have steps wait, once, until an artifact that they build on and found damaged is made again.

        What lies in the store is looked at before it counts as done; this is for what only the step finds that fetches
        it, or that was damaged meanwhile.

        Returns:
            The nodes that can start now; None where it is no such error.
        """
        if not isinstance(error, DamagedError) or self.repeated & set(nodes):
            return None
        broken: list[Node] = []
        if error.address not in self.remade:
            broken = [node for node, one in self.done.items() if one.path == error.address]
            if not broken:
                return None
            self.remade.add(error.address)
            remove(error.address)
            for node in broken:
                self.progress.damaged(node.name, error.what)
        self.repeated |= set(nodes)
        again = [*broken, *nodes]
        forgotten = {self.steps.pop(node).key for node in again if node in self.steps}
        self.by_key = {key: one for key, one in self.by_key.items() if key not in forgotten}
        for node in again:
            self.done.pop(node, None)
        self.begun -= set(again)
        for node in self.missing.keys() - self.begun:
            self.missing[node] = sum(need not in self.done for need in set(node.needs))
        return [node for node in again if not self.missing[node]]

    def _fail(self, node: Node, reason: str) -> None:
        self.failures[node.name] = reason
        self.progress.failed(node.name, reason)
        self.live.failed(node.name)


def _failure_sentence(failures: Mapping[str, str]) -> str:
    name, reason = next(iter(failures.items()))
    others = len(failures) - 1
    also = f" ({others} more failed as well; finished cells are kept)" if others else " (finished cells are kept)"
    return f"{name} failed: {reason}{also}"
