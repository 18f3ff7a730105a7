"""The steps of a study, each submitted to Prefect once those it reads are done."""

from __future__ import annotations

import queue
from collections.abc import Callable
from graphlib import TopologicalSorter
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


def run_steps(ready: ReadyStudy, alive: Callable[[], None]) -> None:
    """Run every step that can run; docs/architecture.md says why Prefect's runner does not order
    them itself.

    Raises:
        StudyError: one could not.
    """
    session = Session(
        ready.store, ready.pool, ready.spec.execution, ready.progress, ready.live.epoch
    )
    order = TopologicalSorter({step: step.needs for step in ready.steps.steps})
    order.prepare()
    states: dict[Step, State[Any]] = {}
    running: dict[PrefectFuture[Any], Step] = {}
    failures: dict[str, str] = {}
    # Prefect's own as_completed looks at every running step each time.
    ended: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
    while order.is_active():
        for step in order.get_ready():
            future = submit(step, session, [states[need] for need in step.needs])
            running[future] = step
            future.add_done_callback(ended.put)
        if not running:
            break
        future = ended.get()
        step, result, state = (
            running.pop(future),
            future.result(raise_on_failure=False),
            future.state,
        )
        if state.is_completed():
            states[step] = state
            order.done(step)
            _tell(ready, step, cached=state.name == CACHED)
        else:
            failures[step.name] = reason(result)
            ready.progress.failed(step.name, reason(result))
            ready.live.failed(step.name)
        alive()
    if failures:
        name, why = next(iter(failures.items()))
        others = f"{len(failures) - 1} more failed as well; " if len(failures) > 1 else ""
        raise StudyError(f"{name} failed: {why} ({others}finished cells are kept)")


def _tell(ready: ReadyStudy, step: Step, *, cached: bool) -> None:
    """Tell who follows the study that a step is finished."""
    found = step.reference(ready.store)
    ready.progress.finished(step.name, cached=cached)
    ready.live.finished(step.name, found)
    if step.stage == "tokenise":
        for sentence in read_metadata(found.path)["notes"].get("warnings", ()):
            ready.progress.warned(step.name, sentence)
