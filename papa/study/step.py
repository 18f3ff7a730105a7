"""A step is a stage with its arguments: its key, known before it runs, and what it may then use."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from papa.files import sha256_of_json
from papa.models.reference import EncoderReference
from papa.progress import OnEpoch, Progress, ignore_epoch
from papa.spec import ExecutionSpec, StudySpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, published
from papa.storage.files import Files
from papa.storage.store import Store

KEY_FORMAT, _ASKED_AT_ONCE = 3, 16
_OF_ENCODER = ("digest", "tokenizer_digest", "model_type", "layers", "heads", "width", "precision")
"""What of an encoder enters a key: content, not where it lies or what it is called."""

Where = Literal["worker", "driver", "pool"]
_Of = TypeVar("_Of")
_Found = TypeVar("_Found")


class Stage:
    """A function that makes one artifact; called with a name and its arguments, it gives a step."""

    def __init__(
        self, function: Callable[..., None], name: str, version: int, where: Where, *unkeyed: str
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.name, self.version = function, name, version
        self.where, self.unkeyed = where, unkeyed

    def __call__(self, name: str, *arguments: Any, **named: Any) -> Step:
        bound = inspect.signature(self.function).bind(None, *arguments, **named)
        bound.apply_defaults()
        _, *others = bound.arguments.items()
        return Step(self, name, dict(others))

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined]


def stage(
    name: str, *unkeyed: str, version: int, where: Where = "worker"
) -> Callable[[Callable[..., None]], Stage]:
    """Make a function a ``Stage``; ``unkeyed`` arguments change no number. Its version is raised by
    hand where the code gives other results for the same arguments. It runs on the next free
    "worker", which has the argument ``encoder`` loaded; on a worker of the "driver", where what it
    reads lies on that machine alone; or in a thread of the driver that has the "pool" of workers.
    """
    return lambda function: Stage(function, name, version, where, *unkeyed)


@dataclass(frozen=True, eq=False)
class Step:
    """One stage with its arguments, some of which are steps. Steps with one key are equal."""

    of: Stage
    name: str
    arguments: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def stage(self) -> str:
        """Its stage's name."""
        return self.of.name

    @cached_property
    def spec(self) -> dict[str, Any]:
        """Its arguments as they enter its key: of steps their keys, as JSON."""
        keyed = self.arguments.keys() - {*self.of.unkeyed}
        return {name: in_key(self.arguments[name]) for name in self.arguments if name in keyed}

    @cached_property
    def key(self) -> str:
        """The cache key."""
        parts = {"stage": self.stage, "version": self.of.version, "arguments": self.spec}
        return sha256_of_json({"format": KEY_FORMAT, **parts})

    @property
    def address(self) -> str:
        """``stage/key``, by which a store knows its artifact."""
        return f"{self.stage}/{self.key}"

    @cached_property
    def needs(self) -> tuple[Step, ...]:
        """The steps whose artifacts it reads, each once."""
        return tuple(dict.fromkeys(_steps_in(self.arguments)))

    def changed(self, name: str | None = None, **arguments: Any) -> Step:
        """The step with some arguments, and a name, changed."""
        return Step(self.of, name or self.name, {**self.arguments, **arguments})

    def folder(self, store: Store) -> str:
        """The address of its artifact."""
        return store.folder(self.stage, self.key)

    def reference(self, store: Store) -> ArtifactReference:
        """Its finished artifact; an ArtifactError where it is not complete."""
        return store.reference(self.stage, self.key)

    def is_complete(self, store: Store) -> bool:
        """Whether its artifact is there; metadata and sizes tell."""
        return store.damage(self.stage, self.key) is None


def in_key(value: Any) -> Any:
    """A value as it enters a key, as JSON: steps by their keys, what has a ``digest`` by that, and
    of a task neither its name nor its source, of which the text's key holds the content.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Step():
            return value.key
        case EncoderReference():
            return {name: getattr(value, name) for name in _OF_ENCODER}
        case StudySpec():
            return value.model_dump(mode="json", exclude={"execution"})
        case TaskSpec():
            held = vars(value).items()
            return {name: in_key(own) for name, own in held if name not in ("name", "source")}
        case Mapping():
            return sorted([[in_key(name), in_key(own)] for name, own in value.items()], key=repr)
        case tuple() | list():
            return [in_key(own) for own in value]
        case _ if hasattr(value, "digest"):
            return value.digest or "not known"
        case _ if is_dataclass(value) or isinstance(value, BaseModel):
            return {name: in_key(own) for name, own in vars(value).items()}
    raise TypeError(f"no key holds a {type(value).__name__}")


def _steps_in(value: Any) -> Iterator[Step]:
    held = vars(value) if is_dataclass(value) else value
    if isinstance(value, Step):
        yield value
    elif isinstance(held, Mapping | tuple):
        for own in held.values() if isinstance(held, Mapping) else held:
            yield from _steps_in(own)


def with_needs(steps: Iterable[Step]) -> list[Step]:
    """Steps after all that they read, each once."""
    found: dict[Step, None] = {}
    for step in steps:
        found |= dict.fromkeys((*with_needs(step.needs), step))
    return list(found)


def in_threads(function: Callable[[_Of], _Found], values: Iterable[_Of]) -> dict[_Of, _Found]:
    """``function`` of each value; after an error no further one is begun."""
    values = list(values)
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as executor:
        return dict(zip(values, executor.map(function, values), strict=True))


@dataclass(frozen=True)
class Context:
    """What a stage's function may use beside its arguments: its argument ``encoder``, loaded, but
    for a decoder; settings that never change results; the pool, where the stage asks for it.
    """

    step: Step
    store: Store
    execution: ExecutionSpec
    progress: Progress
    encoder: Any = None
    on_epoch: OnEpoch = ignore_epoch
    pool: Any = None
    _started: float = field(default_factory=time.monotonic)
    _processor: float = field(default_factory=time.process_time)

    @cached_property
    def found(self) -> dict[Step, ArtifactReference]:
        """The artifacts that the step reads; an ArtifactError where one is not complete."""
        return in_threads(lambda step: step.reference(self.store), self.step.needs)

    def spent(self) -> dict[str, Any]:
        """What the encoder runs on, and seconds: on a CPU those that this process had it."""
        device = "cpu" if self.encoder is None else str(self.encoder.device.type)
        wall, own = time.monotonic() - self._started, time.process_time() - self._processor
        return {"worker_seconds": own if device == "cpu" else wall, "device": device}

    def metadata(self) -> dict[str, Any]:
        """What the step's artifact says of itself."""
        step = self.step
        return {
            "stage": step.stage,
            "name": step.name,
            "key": step.key,
            "spec": step.spec,
            "stage_version": step.of.version,
            "inputs": [need.address for need in step.needs],
            "seconds": time.monotonic() - self._started,
            **self.spent(),
        }

    @contextmanager
    def published(self, **more: Any) -> Iterator[Path]:
        """Yield a folder to fill; it becomes the step's artifact, which says ``more`` of itself."""
        with published(self.step.folder(self.store), {**self.metadata(), **more}) as folder:
            yield folder

    @contextmanager
    def asked(self, **more: Any) -> Iterator[dict[str, Any]]:
        """What training is asked beside ``more``: settings, and a folder for features."""
        files, name = Files(self.store.scratch), f"features-{self.step.key[:16]}"
        # A killed call may have left its features there.
        files.remove(name)
        try:
            settings = {"execution": self.execution, "progress": self.progress}
            with files.filled(name) as folder:
                yield {"scratch": folder, **settings, **more}
        finally:
            files.remove(name)

    def corpus(self, step: Step) -> Any:
        """A text that it reads, as a ``TokenisedCorpus``."""
        from papa.study.stages.tokenise import open_corpus

        return open_corpus(self.found[step])

    def own_model(self, task: TaskSpec, encoder: EncoderReference) -> Any:
        """The model with its own head, by its files on this machine, and its special tokens."""
        from papa.probes.own import opened_own

        here = (self.encoder and self.encoder.reference) or encoder
        return opened_own(task, here, str(self.encoder.device) if self.encoder else "cpu")
