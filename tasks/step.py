"""A step is a stage with its arguments: its key, known before it runs, and what it may then use."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
        self,
        function: Callable[..., None],
        name: str,
        version: int,
        where: Where,
        *unkeyed: str,
        by_seed: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.name, self.version = function, name, version
        self.where, self.unkeyed, self.by_seed = where, unkeyed, by_seed

    def __call__(self, name: str, *arguments: Any, **named: Any) -> Step:
        bound = inspect.signature(self.function).bind(None, *arguments, **named)
        bound.apply_defaults()
        _, *others = bound.arguments.items()
        return Step(self, name, dict(others))

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined]


def stage(
    name: str, *unkeyed: str, version: int, where: Where = "worker", by_seed: bool = False
) -> Callable[[Callable[..., None]], Stage]:
    """Make a function a ``Stage``; ``unkeyed`` arguments change no number. Its version is raised by
    hand where the code gives other results for the same arguments. It runs on the next free
    "worker", which has the argument ``encoder`` loaded; on a worker of the "driver", where what it
    reads lies on that machine alone; or in a thread of the driver that has the "pool" of workers.
    With ``by_seed`` its argument ``seeds`` is one seed in each step, and all those of steps that
    differ in nothing else where they run together: it publishes an artifact for each of them.
    """
    return lambda function: Stage(function, name, version, where, *unkeyed, by_seed=by_seed)


@dataclass(frozen=True, eq=False)
class Step:
    """One stage with its arguments, some of which are steps. Steps with one key are equal.

    ``members`` are steps that differ in their seed alone, the step itself among them, which run
    together.
    """

    of: Stage
    name: str
    arguments: Mapping[str, Any] = field(repr=False)
    members: tuple[Step, ...] = field(default=(), repr=False)

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

    @cached_property
    def key_of_all_seeds(self) -> str:
        """What steps that differ in their seed alone have in common."""
        return self.changed(seeds=()).key if self.of.by_seed else self.key

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


def together(steps: Iterable[Step]) -> list[Step]:
    """The steps, of those that differ in their seed alone the first, with all as its members."""
    groups: dict[str, list[Step]] = {}
    for step in steps:
        groups.setdefault(step.key_of_all_seeds, []).append(step)
    return [
        Step(first.of, _name_of_all(members), first.arguments, tuple(members))
        for first, *others in groups.values()
        for members in [[first, *others]]
    ]


def _name_of_all(steps: Sequence[Step]) -> str:
    """``probe · cola · seed 0`` and the same of seed 1 are ``probe · cola · seeds 0, 1``."""
    name = steps[0].name.rpartition(" · seed ")[0]
    seeds = (step.name.rpartition(" · seed ")[2] for step in steps)
    return f"{name} · seeds {', '.join(seeds)}" if len(steps) > 1 else steps[0].name


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
    for a decoder; settings that never change results; the pool, where the stage asks for it; of a
    stage ``by_seed`` the steps that the call makes.
    """

    step: Step
    store: Store
    execution: ExecutionSpec
    progress: Progress
    encoder: Any = None
    on_epoch: OnEpoch = ignore_epoch
    pool: Any = None
    members: tuple[Step, ...] = ()
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

    def metadata(self, step: Step | None = None) -> dict[str, Any]:
        """What the artifact of the step, or of one of the ``members``, says of itself."""
        step, calls = step or self.step, max(1, len(self.members))
        spent = self.spent()
        return {
            "stage": step.stage,
            "name": step.name,
            "key": step.key,
            "spec": step.spec,
            "stage_version": step.of.version,
            "inputs": [need.address for need in step.needs],
            # Of a call for several seeds each has a share.
            "seconds": (time.monotonic() - self._started) / calls,
            "worker_seconds": spent["worker_seconds"] / calls,
            "device": spent["device"],
        }

    @contextmanager
    def published(self, step: Step | None = None, **more: Any) -> Iterator[Path]:
        """Yield a folder to fill; it becomes the artifact of the step, or of one of the
        ``members``, and says ``more`` of itself.
        """
        place = (step or self.step).folder(self.store)
        with published(place, {**self.metadata(step), **more}) as folder:
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
        from papa.tasks.tokenise import open_corpus

        return open_corpus(self.found[step])

    def own_model(self, task: TaskSpec, encoder: EncoderReference) -> Any:
        """The model with its own head, by its files on this machine, and its special tokens."""
        from papa.probes.own import opened_own

        here = (self.encoder and self.encoder.reference) or encoder
        return opened_own(task, here, str(self.encoder.device) if self.encoder else "cpu")
