"""A step is run once: on the workers of a pool, or in this process, without Ray and Prefect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from papa.errors import DamagedError
from papa.models.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import is_complete, remove
from papa.storage.store import Store
from papa.storage.locks import claimed, in_use
from papa.tasks.step import Context, Step, together
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
    """Run a step unless its artifact is complete, or those of its members whose artifacts are not
    in one call; and again after each step that it reads and whose artifact turns out to be damaged
    was made anew; returns whether there was something to do.

    A look at metadata and sizes tells, before any lock; damage beyond is found by what reads it.
    """
    store, members = session.store, step.members or (step,)
    missing = [own for own in members if damage or not own.is_complete(store)]
    if not missing:
        return False
    waits = partial(session.reporter.told, step.name, "waits for another run that works on it")
    before, lock = {*session.made_again}, f"{step.stage}-{step.key_of_all_seeds}"
    try:
        with claimed(store, lock, waits, lambda: session.pool.closed):
            # Another run, or thread, may have finished some while this one waited.
            damages = {own: _damage(own, session, damage) for own in missing}
            wanted = [own for own in missing if damages[own] or not own.is_complete(store)]
            for own in wanted:
                if found := damages[own]:
                    remove(own.folder(store))
                    session.reporter.told(own.name, f"made again: {found.what}")
            if wanted:
                with session.reporter.running(step.name) as progress:
                    run_step(wanted, session, progress)
            session.made_again |= {own.key for own in wanted if damages[own]}
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


def _damage(step: Step, session: Session, known: DamagedError | None) -> DamagedError | None:
    """What is wrong with a step's artifact: what is known, unless it was made again since."""
    if known and step.key not in session.made_again:
        return known
    if is_complete(step.folder(session.store)):
        return session.store.damage(step.stage, step.key)
    return None


def run_step(steps: Sequence[Step], session: Session, progress: Progress) -> None:
    """Have the artifacts of a step, or of several that differ in their seed, made where their stage
    says.
    """
    first, *_ = steps
    arguments, encoder = dict(first.arguments), first.arguments.get("encoder")
    if first.of.by_seed:
        arguments["seeds"] = tuple(seed for step in steps for seed in step["seeds"])
    asked: dict[str, Any] = {"step": first, "store": session.store, "execution": session.execution}
    asked["members"] = tuple(steps)
    if first.of.where == "pool":
        first.of.function(Context(**asked, progress=progress, pool=session.pool), **arguments)
        return
    epochs = session.pool.run(
        compute,
        encoder=encoder if encoder and not encoder.causal else None,
        arguments={**asked, "step_arguments": arguments},
        progress=progress,
        at_driver=first.of.where == "driver",
    )
    if not first.of.by_seed:
        for epoch in epochs:
            session.on_epoch(first.name, *epoch)
        return
    for step, (number, losses, ended) in product(steps, epochs):
        of_step = {seed: loss for seed, loss in losses.items() if seed in step["seeds"]}
        if of_step:
            session.on_epoch(step.name, number, of_step, ended)


def compute(*, step: Step, step_arguments: Mapping[str, Any], **asked: Any) -> list[Epoch]:
    """Call a step's function on a worker; returns the epochs that it trained for."""
    ended: list[Epoch] = []

    def on_epoch(epoch: int, losses: Mapping[int, float]) -> None:
        ended.append((epoch, losses, time.time()))

    step.of.function(Context(step, on_epoch=on_epoch, **asked), **step_arguments)
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
        for step in together(steps):
            make(step, session)
