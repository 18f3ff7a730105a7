"""A study's steps run in this process, one after the other: no Ray and no Prefect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from papa.encoders.reference import EncoderReference
from papa.errors import DamagedError
from papa.progress import EpochEnded, Progress, ignore_progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import remove
from papa.study.step import Reporter, Session, Step
from papa.study.store import Store, announced, claimed


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
            remove(step.folder(store))
            told(f"made again: {damage.what}")
        # Asked again, as another run may have finished the step while this one waited.
        if not step.is_complete(store):
            if unsound := step.clear(store):
                told(f"made again: {unsound.what}")
            with session.reporter.running(step.name) as progress:
                step.run(session, progress)


class ThisProcess:
    """What stands in for the pool of workers: this process, with one thread, as each of them. Of
    encoders that are not ``loaded`` the last one that was asked for is kept.
    """

    size, closed = 1, False

    def __init__(
        self, device: str = "auto", loaded: Mapping[EncoderReference, Any] | None = None
    ) -> None:
        self._device = device
        self._given = dict(loaded or {})
        self._last: dict[EncoderReference, Any] = {}

    @property
    def on_gpu(self) -> bool:
        """Whether encoders run on a GPU."""
        import torch

        return self._device == "cuda" or (self._device == "auto" and torch.cuda.is_available())

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
        given: dict[str, Any] = {}
        if on_epoch is not None:
            given["on_epoch"] = lambda epoch, losses: on_epoch(epoch, losses, time.time())
        with _one_thread():
            if encoder is not None:
                given["encoder"] = self._load(encoder)
            result = function(**given, **arguments, progress=progress)
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
            from papa.encoders.encoder import load_encoder

            self._last.clear()
            self._last[reference] = load_encoder(reference, "cuda" if self.on_gpu else "cpu")
        return self._last[reference]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread inside the block, so that results are any run's, to the bit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
