"""A step is run once: on the workers of a pool, or in this process, without Ray and Prefect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from papa.encoders.reference import EncoderReference
from papa.errors import DamagedError
from papa.progress import EpochEnded, OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import remove
from papa.study.step import Context, Step
from papa.study.store import Store, announced, claimed

if TYPE_CHECKING:
    from papa.workers import WorkerPool


@runtime_checkable
class Reporter(Protocol):
    """Receives the state of steps."""

    def running(self, name: str) -> AbstractContextManager[Progress]:
        """The step ``name`` runs while the block does; yields the callback for its progress."""

    def told(self, name: str, sentence: str) -> None:
        """There is something to know of the step ``name``."""


@dataclass(eq=False)
class Session:
    """What the steps of a run share. ``on_epoch`` is called with a step's name and what
    ``papa.progress.EpochEnded`` is called with.
    """

    store: Store
    pool: WorkerPool | ThisProcess
    execution: ExecutionSpec
    reporter: Reporter
    on_epoch: Callable[[str, int, Mapping[int, float], float], None] = lambda *_: None
    made_again: set[str] = field(default_factory=set)


def make(step: Step, session: Session, damage: DamagedError | None = None) -> bool:
    """Run a step unless its artifact is complete, and again after each step that it reads and whose
    artifact turns out to be damaged was made anew; returns whether there was something to do.

    Whether it is complete is asked before any lock: a step that is finished needs none. A look at
    metadata and sizes tells; damage beyond that is found by what reads it.
    """
    if damage is None and step.is_complete(session.store):
        return False
    while True:
        try:
            _make(step, session, damage)
            return True
        except DamagedError as error:
            needs = {need.folder(session.store): need for need in step.needs}
            broken = needs.get(error.address)
            if broken is None or broken.key in session.made_again:
                raise
            make(broken, session, error)


def _make(step: Step, session: Session, damage: DamagedError | None) -> None:
    store, told = session.store, partial(session.reporter.told, step.name)
    waits = partial(told, "waits for another run that works on it")
    with claimed(store, f"{step.stage}-{step.key}", waits, lambda: session.pool.closed):
        if damage and step.key not in session.made_again:
            session.made_again.add(step.key)
        elif step.is_complete(store):
            # Another run, or thread, finished the step while this one waited.
            return
        else:
            there = store.is_there(step.stage, step.key)
            damage = store.damage(step.stage, step.key) if there else None
        if damage:
            remove(step.folder(store))
            told(f"made again: {damage.what}")
        with session.reporter.running(step.name) as progress:
            run_step(step, session, progress)


def run_step(step: Step, session: Session, progress: Progress) -> None:
    """Have a step's artifact made where its stage says."""
    execution = session.execution
    if step.of.where == "pool":
        context = Context(step, session.store, execution, progress, pool=session.pool)
        step.of.function(context, **step.arguments)
        return
    encoder = step.arguments.get("encoder")
    session.pool.run(
        compute,
        encoder=encoder if encoder and not encoder.causal else None,
        arguments={"step": step, "store": session.store, "execution": execution},
        progress=progress,
        at_driver=step.of.where == "driver",
        on_epoch=partial(session.on_epoch, step.name),
    )


def compute(
    *,
    step: Step,
    store: Store,
    execution: ExecutionSpec,
    progress: Progress,
    encoder: Any = None,
    on_epoch: OnEpoch = ignore_epoch,
) -> None:
    """Call a step's function; what workers are given."""
    step.of.function(Context(step, store, execution, progress, encoder, on_epoch), **step.arguments)


class ThisProcess:
    """What stands in for the pool of workers: this process, with one thread as each of them, so
    that results are any run's, to the bit. Of encoders that are not ``loaded`` the last is kept.
    """

    size, closed = 1, False

    def __init__(
        self, device: str = "auto", loaded: Mapping[EncoderReference, Any] | None = None
    ) -> None:
        self._device, self._given = device, dict(loaded or {})
        self._last: dict[EncoderReference, Any] = {}

    def run(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Any],
        encoder: EncoderReference | None = None,
        progress: Progress = ignore_progress,
        on_epoch: EpochEnded | None = None,
        at_driver: bool = False,
    ) -> Any:
        """Call a function; see ``WorkerPool.run``."""
        import torch

        given: dict[str, Any] = {}
        if on_epoch is not None:
            given["on_epoch"] = lambda epoch, losses: on_epoch(epoch, losses, time.time())
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            if encoder is not None:
                given["encoder"] = self._load(encoder)
            result = function(**given, **arguments, progress=progress)
        finally:
            torch.set_num_threads(threads)
        if encoder is not None:
            given["encoder"].check_unchanged()
        return result

    def each(self, function: Callable[[Any], object], values: Iterable[Any]) -> Iterator[None]:
        """Call a function of each value; see ``WorkerPool.each``."""
        for value in values:
            function(value)
            yield

    def _load(self, reference: EncoderReference) -> Any:
        if reference in self._given:
            return self._given[reference]
        if reference not in self._last:
            import torch

            from papa.encoders.encoder import load_encoder

            self._last.clear()
            cuda = self._device == "auto" and torch.cuda.is_available()
            device = "cuda" if cuda or self._device == "cuda" else "cpu"
            self._last[reference] = load_encoder(reference, device)
        return self._last[reference]


def run_here(
    steps: Iterable[Step],
    store: Store,
    execution: ExecutionSpec,
    reporter: Reporter,
    loaded: Mapping[EncoderReference, Any] | None = None,
) -> None:
    """Run steps, each after those it reads, unless their artifacts are complete; the first that
    fails ends it.
    """
    session = Session(store, ThisProcess(execution.device, loaded), execution, reporter)
    with announced(store) as alive:
        for step in steps:
            make(step, session)
            alive()
