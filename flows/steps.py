"""The steps of a study, each submitted to Prefect once those it reads are done."""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prefect.futures import PrefectFuture
from prefect.states import State

from flows.startup import ReadyStudy
from papa.errors import PapaError
from papa.storage.artifacts import read_metadata
from papa.study.step import Session, Step
from tasks.perform import CACHED, reason, submit


class StudyError(PapaError):
    """Some cells of a study failed; what the others found is kept."""


class Steps:
    """Submits each step to Prefect once those it reads are done.

    Prefect's runner could order steps by their futures, but each that waits would hold one of its threads, and those
    behind a failed step would be records of their own that never ran.
    """

    def __init__(self, ready: ReadyStudy, alive: Callable[[], None]) -> None:
        self.session = Session(ready.store, ready.pool, ready.spec.execution, ready.progress, ready.live.epoch)
        self.progress, self.live, self.alive = ready.progress, ready.live, alive
        self.missing = {step: len(step.needs) for step in ready.steps.steps}
        self.dependents: dict[Step, list[Step]] = defaultdict(list)
        for step in ready.steps.steps:
            for need in step.needs:
                self.dependents[need].append(step)
        self.states: dict[Step, State[Any]] = {}
        self.running: dict[PrefectFuture[Any], Step] = {}
        self.ended: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
        self.failures: dict[str, str] = {}

    def run(self) -> None:
        """Run everything that can run.

        Raises:
            StudyError: something could not.
        """
        self._submit(step for step, missing in self.missing.items() if not missing)
        while self.running:
            # Prefect's own as_completed looks at every running step each time.
            ready = self._finish(self.ended.get())
            self.alive()
            self._submit(ready)
        if self.failures:
            raise StudyError(_failure_sentence(self.failures))

    def _submit(self, steps: Iterable[Step]) -> None:
        """Submit steps whose inputs are all done."""
        for step in steps:
            future = submit(step, self.session, [self.states[need] for need in step.needs])
            self.running[future] = step
            future.add_done_callback(self.ended.put)

    def _finish(self, future: PrefectFuture[Any]) -> list[Step]:
        """Take in how a task run ended; returns the steps that can start by it."""
        step, result, state = self.running.pop(future), future.result(raise_on_failure=False), future.state
        if not state.is_completed():
            self.failures[step.name] = reason(result)
            self.progress.failed(step.name, reason(result))
            self.live.failed(step.name)
            return []
        self.states[step] = state
        found = step.reference(self.session.store)
        self.progress.finished(step.name, cached=state.name == CACHED)
        self.live.finished(step.name, found)
        if step.stage == "tokenise":
            for sentence in read_metadata(found.path)["notes"].get("warnings", ()):
                self.progress.warned(step.name, sentence)
        ready = []
        for dependent in self.dependents[step]:
            self.missing[dependent] -= 1
            if not self.missing[dependent]:
                ready.append(dependent)
        return ready


def _failure_sentence(failures: Mapping[str, str]) -> str:
    name, reason = next(iter(failures.items()))
    others = len(failures) - 1
    also = f" ({others} more failed as well; finished cells are kept)" if others else " (finished cells are kept)"
    return f"{name} failed: {reason}{also}"
