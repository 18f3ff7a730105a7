"""A step: one stage on known inputs, with the key of its result; and what it may use while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.workers import WorkerPool
from tasks.store import Store, cache_key


@dataclass(frozen=True)
class Step(ABC):
    """One stage on known inputs.

    Attributes:
        name: what people call it, such as ``average · all-MiniLM-L6-v2 · reviews``.
        flops: about how many floating point operations it takes, for plans; never part of its key.
    """

    stage: ClassVar[str]
    version: ClassVar[int]
    """Raised by hand when the stage's code gives other results for the same inputs."""

    name: str
    flops: float

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """The part of the specification that the result depends on, as JSON."""

    @abstractmethod
    def upstream(self) -> dict[str, str | None]:
        """The digests of what it builds on, by name."""

    def origins(self) -> tuple[str, ...]:
        """Digests of further artifacts it came from, where the key holds what they led to instead."""
        return ()

    @abstractmethod
    def run(self, session: Session, progress: Progress) -> None:
        """Make the artifact at ``folder(session.store)``.

        Raises:
            PapaError: its inputs do not fit.
        """

    @cached_property
    def key(self) -> str:
        """The cache key."""
        return cache_key(self.stage, self.version, self.spec(), self.upstream())

    def folder(self, store: Store) -> str:
        """The address of its artifact."""
        return store.folder(self.stage, self.key)

    def is_complete(self, store: Store) -> bool:
        """Whether there is nothing left to do."""
        return store.holds(self.stage, self.key)

    def metadata(self) -> dict[str, Any]:
        """What every artifact says about where it comes from."""
        return {
            "stage": self.stage,
            "stage_version": self.version,
            "name": self.name,
            "key": self.key,
            "spec": self.spec(),
            "upstream": self.upstream(),
            "origins": self.origins(),
            "flops": self.flops,
        }


def identity(encoder: EncoderReference) -> dict[str, Any]:
    """What of an encoder enters a cache key: its weights, shape and precision, not where it lies."""
    return {
        "digest": encoder.digest,
        "model_type": encoder.model_type,
        "layers": encoder.layers,
        "heads": encoder.heads,
        "width": encoder.width,
        "precision": encoder.precision,
    }


class Reporter(Protocol):
    """Who is told how far the work is."""

    def running(self, name: str, flops: float) -> AbstractContextManager[Progress]:
        """While the block runs, the work ``name`` is in progress; yields where to tell how far it is."""

    def waits(self, name: str) -> None:
        """Another run works on ``name``; its result is waited for."""

    def again(self, name: str, reason: str) -> None:
        """The work ``name`` failed and will be tried again."""


class Session:
    """What steps share while a study runs. No step reads another's data through it."""

    def __init__(self, store: Store, pool: WorkerPool, execution: ExecutionSpec, reporter: Reporter) -> None:
        self.store = store
        self.pool = pool
        self.execution = execution
        self.reporter = reporter
