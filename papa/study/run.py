"""A step is run once: on the workers of a pool, or in this process, without Ray and Prefect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from papa.errors import DamagedError
from papa.models.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import is_complete, remove
from papa.storage.store import Store
from papa.study.locks import claimed, in_use
from papa.study.step import Context, Step
from papa.worker import Worker
from papa.workers import WorkerPool

Epoch = tuple[int, Mapping[int, float], float]
"""Its number, from 1, each seed's mean training loss, and when it ended, in seconds since 1970."""


@dataclass(eq=False)
class Session:
    """What the steps of a run share; ``reporter`` is as ``papa.progress.Bars``."""

    store: Store
    pool: WorkerPool | Worker
    execution: ExecutionSpec
    reporter: Any
    on_epoch: Callable[[str, int, Mapping[int, float], float], None] = lambda *_: None
    made_again: set[str] = field(default_factory=set)


def make(step: Step, session: Session, damage: DamagedError | None = None) -> bool:
    """Run a step unless its artifact is complete, and again after each step that it reads and whose
    artifact turns out to be damaged was made anew; returns whether there was something to do.

    A look at metadata and sizes tells, before any lock; damage beyond is found by what reads it.
    """
    store, told = session.store, partial(session.reporter.told, step.name)
    if damage is None and step.is_complete(store):
        return False
    waits, before = partial(told, "waits for another run that works on it"), {*session.made_again}
    try:
        with claimed(store, f"{step.stage}-{step.key}", waits, lambda: session.pool.closed):
            if damage is None or step.key in session.made_again:
                if step.is_complete(store):
                    # Another run, or thread, finished the step while this one waited.
                    return True
                if is_complete(step.folder(store)):
                    damage = store.damage(step.stage, step.key)
            if damage:
                remove(step.folder(store))
                told(f"made again: {damage.what}")
            with session.reporter.running(step.name) as progress:
                run_step(step, session, progress)
            if damage:
                session.made_again.add(step.key)
    except DamagedError as error:
        broken = {need.folder(store): need for need in step.needs}.get(error.address)
        if broken is None or broken.key in before:
            raise
        # Another step that reads it may be making it again: this one waits for that.
        make(broken, session, error)
        make(step, session)
        if damage:
            session.made_again.add(step.key)
    return True


def run_step(step: Step, session: Session, progress: Progress) -> None:
    """Have a step's artifact made where its stage says."""
    encoder = step.arguments.get("encoder")
    asked: dict[str, Any] = {"step": step, "store": session.store, "execution": session.execution}
    if step.of.where == "pool":
        step.of.function(Context(**asked, progress=progress, pool=session.pool), **step.arguments)
        return
    epochs = session.pool.run(
        compute,
        encoder=encoder if encoder and not encoder.causal else None,
        arguments=asked,
        progress=progress,
        at_driver=step.of.where == "driver",
    )
    for epoch in epochs:
        session.on_epoch(step.name, *epoch)


def compute(*, step: Step, **asked: Any) -> list[Epoch]:
    """Call a step's function on a worker; returns the epochs that it trained for."""
    ended: list[Epoch] = []

    def on_epoch(epoch: int, losses: Mapping[int, float]) -> None:
        ended.append((epoch, losses, time.time()))

    step.of.function(Context(step, on_epoch=on_epoch, **asked), **step.arguments)
    return ended


def run_here(
    steps: Iterable[Step],
    store: Store,
    execution: ExecutionSpec,
    reporter: Any,
    loaded: Mapping[EncoderReference, Any] | None = None,
) -> None:
    """Run the steps that are not complete, each after those it reads, to the first that fails."""
    session = Session(store, Worker(execution.device, loaded), execution, reporter)
    with in_use(store):
        for step in steps:
            make(step, session)
