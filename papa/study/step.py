"""A step: one stage on the results of other steps, its key, and what it may use."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, final, runtime_checkable

from papa.encoders.reference import EncoderReference
from papa.errors import DamagedError
from papa.progress import OnEpoch, Progress, ignore_epoch
from papa.spec import ExecutionSpec
from papa.storage.artifacts import ArtifactReference, published, remove
from papa.storage.cache import scratch_folder
from papa.study.store import Store, cache_key

if TYPE_CHECKING:
    from papa.study.here import ThisProcess
    from papa.workers import WorkerPool

_ASKED_AT_ONCE = 16


_Of = TypeVar("_Of")
_Found = TypeVar("_Found")


def in_threads(
    function: Callable[[_Of], _Found], values: Iterable[_Of], threads: int
) -> Iterator[_Found]:
    """``function`` of each value, in their order; after an error no further one is begun."""
    executor = ThreadPoolExecutor(threads)
    try:
        yield from executor.map(function, values)
    finally:
        executor.shutdown(cancel_futures=True)


@dataclass(frozen=True, eq=False)
class Step(ABC):
    """One stage on the results of other steps. Its key is known before anything runs; steps with
    one key are equal.

    Attributes:
        name: shown to users, such as ``average · all-MiniLM-L6-v2 · reviews``.
    """

    stage: ClassVar[str]
    version: ClassVar[int]
    """Raised by hand when the stage's code gives other results for the same inputs."""

    name: str

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """The part of the specification that the result depends on, as JSON."""

    def outside(self) -> dict[str, str]:
        """The digests of what it reads that no step makes, such as weights, by name."""
        return {}

    def inputs(self) -> Mapping[str, Step]:
        """The steps whose artifacts it reads, by name."""
        return {}

    @abstractmethod
    def run(self, session: Session, progress: Progress) -> None:
        """Publish the artifact at ``folder(session.store)``; called under the step's lock, where it
        is not complete.
        """

    @cached_property
    def key(self) -> str:
        """The cache key."""
        inputs = {name: step.key for name, step in self.inputs().items()}
        return cache_key(self.stage, self.version, self.spec(), {**self.outside(), **inputs})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def needs(self) -> tuple[Step, ...]:
        """Its inputs, each once."""
        return tuple(dict.fromkeys(self.inputs().values()))

    def folder(self, store: Store) -> str:
        """The address of its artifact."""
        return store.folder(self.stage, self.key)

    def reference(self, store: Store) -> ArtifactReference:
        """Its finished artifact; an ArtifactError where it is not complete."""
        return store.reference(self.stage, self.key)

    def found(self, store: Store) -> dict[Step, ArtifactReference]:
        """The artifacts that it reads; an ArtifactError where one is not complete."""
        found = in_threads(lambda step: step.reference(store), self.needs, _ASKED_AT_ONCE)
        return dict(zip(self.needs, found, strict=True))

    @final
    def is_complete(self, store: Store) -> bool:
        """Whether its artifact is there and undamaged."""
        return store.holds(self.stage, self.key)

    def clear(self, store: Store) -> DamagedError | None:
        """Remove the step's artifact where it is damaged; returns what was wrong with it."""
        damage = (
            store.damage(self.stage, self.key) if store.is_there(self.stage, self.key) else None
        )
        if damage:
            remove(self.folder(store))
        return damage

    def metadata(self, found: Mapping[Step, ArtifactReference]) -> dict[str, Any]:
        """The provenance that every artifact records."""
        return {
            "stage": self.stage,
            "stage_version": self.version,
            "name": self.name,
            "key": self.key,
            "spec": self.spec(),
            "upstream": {
                **self.outside(),
                **{name: found[step].digest for name, step in self.inputs().items()},
            },
            "inputs": [f"{step.stage}/{step.key}" for step in self.needs],
        }


class WorkerStep(Step):
    """A step that one worker computes.

    The step itself goes to the worker: it holds specifications and other steps, no data.
    """

    at_driver: ClassVar[bool] = False
    """Whether what it reads lies on the driver's machine alone."""
    loads_encoder: ClassVar[bool] = False
    """Whether the worker has its encoder loaded; a decoder is loaded by the step itself."""
    trains: ClassVar[bool] = False
    """Whether it tells the losses of epochs."""

    @abstractmethod
    def compute(self, encoder: Any, context: Context) -> None:
        """Open the inputs, compute, and publish the artifact; runs on the worker."""

    def run(self, session: Session, progress: Progress) -> None:
        """Have the next free worker call ``compute``."""
        encoder: EncoderReference | None = getattr(self, "encoder", None)
        session.pool.run(
            compute_step,
            encoder=encoder if self.loads_encoder and encoder and not encoder.causal else None,
            arguments={"step": self, "store": session.store, "execution": session.execution},
            progress=progress,
            at_driver=self.at_driver,
            on_epoch=partial(session.on_epoch, self.name) if self.trains else None,
        )


def compute_step(
    *,
    step: WorkerStep,
    store: Store,
    execution: ExecutionSpec,
    progress: Progress,
    encoder: Any = None,
    on_epoch: OnEpoch = ignore_epoch,
) -> None:
    """Compute a step and publish its artifact; the function that workers are given."""
    step.compute(encoder, Context(step, store, execution, progress, encoder, on_epoch))


def worker_clock(device: str) -> float:
    """A clock in seconds for a worker's work: on a CPU its own, which stands still while others
    have the processor; on a GPU the wall's.
    """
    return time.process_time() if device == "cpu" else time.monotonic()


@dataclass(frozen=True)
class Context:
    """What a step may use on the worker that computes it.

    Attributes:
        execution: settings that change speed and never results.
    """

    step: Step
    store: Store
    execution: ExecutionSpec
    progress: Progress
    encoder: Any = None
    on_epoch: OnEpoch = ignore_epoch
    _started: float = field(default_factory=time.monotonic)
    _worked: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_worked", worker_clock(self.device))

    @property
    def device(self) -> str:
        """What the encoder runs on."""
        return "cpu" if self.encoder is None else str(self.encoder.device.type)

    @cached_property
    def found(self) -> dict[Step, ArtifactReference]:
        """The artifacts that the step reads."""
        return self.step.found(self.store)

    @cached_property
    def seconds(self) -> float:
        """Seconds from the start to this value's first use, so that result and metadata agree."""
        return time.monotonic() - self._started

    @contextmanager
    def published(self, **found: Any) -> Iterator[Path]:
        """Yield a folder to fill; it becomes the step's artifact, with its provenance, ``found``
        and the seconds.
        """
        metadata = {
            **self.step.metadata(self.found),
            **found,
            "seconds": self.seconds,
            "worker_seconds": worker_clock(self.device) - self._worked,
            "device": self.device,
        }
        with published(self.step.folder(self.store), metadata) as folder:
            yield folder
            if self.encoder is not None:
                self.encoder.check_unchanged()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for features during the block: in the store, or the cache if that is remote."""
        if self.store.is_remote:
            with scratch_folder() as folder:
                yield folder
            return
        folder = self.store.scratch / f"features-{self.step.key[:16]}"
        # A killed call may have left its features there.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def identity(encoder: EncoderReference) -> dict[str, Any]:
    """The part of an encoder that enters a key: weights, shape and precision, not its folder."""
    return {
        "digest": encoder.digest,
        "model_type": encoder.model_type,
        "layers": encoder.layers,
        "heads": encoder.heads,
        "width": encoder.width,
        "precision": encoder.precision,
    }


@runtime_checkable
class Reporter(Protocol):
    """Receives the state of steps."""

    def running(self, name: str) -> AbstractContextManager[Progress]:
        """The step ``name`` runs while the block does; yields the callback for its progress."""

    def told(self, name: str, sentence: str) -> None:
        """There is something to know of the step ``name``."""


EpochOfStep = Callable[[str, int, Mapping[int, float], float], None]
"""Called with a step's name and what ``papa.progress.EpochEnded`` is called with."""


@dataclass(eq=False)
class Session:
    """What the steps of a run share; no step reads another's data through it."""

    store: Store
    pool: WorkerPool | ThisProcess
    execution: ExecutionSpec
    reporter: Reporter
    on_epoch: EpochOfStep = lambda *_: None
    made_again: set[str] = field(default_factory=set)
