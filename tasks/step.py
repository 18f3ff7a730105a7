"""A step: a stage of the pipeline with its arguments, its cache key, and the artifact it leaves.

Keys are known before anything runs: a key is the digest of the stage's name and version and of the
step's arguments, with other steps by their keys and encoders by the digests of their files.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel

from papa.files import sha256_of_json
from papa.models.reference import EncoderReference
from papa.spec import StudySpec, TaskSpec
from papa.storage.artifacts import ArtifactReference
from papa.storage.store import Store

KEY_FORMAT = 3
"""Raise it when keys are computed in another way, so that no earlier artifact is read."""
_KEYED_BY_ENCODER = (
    "digest",
    "tokenizer_digest",
    "model_type",
    "layers",
    "heads",
    "width",
    "precision",
)
"""The fields of an encoder that enter a key: its content, not its name or where its files lie."""

RunsOn = Literal["any worker", "driver's machine", "driver thread"]


@dataclass(eq=False)
class Stage:
    """A function of the pipeline, which the engine runs as ``body(context, *arguments)``; ``step``
    returns it with its arguments. People see its name in the store, in Prefect and in MLflow;
    ``stage`` describes the rest.
    """

    body: Callable[..., None]
    name: str
    version: int
    runs_on: RunsOn
    unkeyed: tuple[str, ...] = ()
    by_seed: bool = False

    def __post_init__(self) -> None:
        self.__doc__ = self.body.__doc__
        self.__module__ = self.body.__module__
        self.__qualname__ = self.body.__qualname__

    def step(self, name: str, /, **arguments: Any) -> Step:
        """Return the step that will run the body with these arguments, its context aside; nothing
        runs yet. People see its name, such as "average · bert-base-uncased · cola".
        """
        bound = inspect.signature(self.body).bind(None, **arguments)
        bound.apply_defaults()
        _context, *bound_arguments = bound.arguments.items()
        return Step(self, name, dict(bound_arguments))

    def __reduce__(self) -> str:
        # By reference, as a function is pickled: workers import the module.
        return self.__qualname__


def stage(
    name: str,
    *,
    version: int,
    runs_on: RunsOn = "any worker",
    unkeyed: tuple[str, ...] = (),
    by_seed: bool = False,
) -> Callable[[Callable[..., None]], Stage]:
    """Make a function a ``Stage`` of the pipeline.

    The cache key holds the stage's name and version, the names of the body's parameters, and their
    values; of a dataclass among the values also the names of its fields. To rename a parameter, or
    a field of such a dataclass, changes the key: every store computes the step again.

    Args:
        name: The stage's name.
        version: Raise it by hand when the function gives other results for the same arguments.
        runs_on: "any worker": on the next idle worker, with the step's model loaded (``model_of``).
            "driver's machine": on a worker there, where the input's files lie; in the driver
            process with a cluster, or before Ray runs. "driver thread": in a thread of the driver
            process; the body sends work to workers by ``context.call_worker``, if at all.
        unkeyed: Arguments that change no result, and so are left out of the key.
        by_seed: The argument ``seeds`` is one seed in each step. Steps that differ in nothing else
            run in one call with all their seeds, and the body publishes an artifact for each.
    """
    return lambda body: Stage(body, name, version, runs_on, unkeyed, by_seed)


@dataclass(frozen=True, eq=False)
class Step:
    """A stage with its arguments, some of which are steps. Steps with equal keys are equal."""

    stage: Stage
    name: str
    arguments: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The arguments as they enter the key, as JSON."""
        return {
            argument: key_content(value)
            for argument, value in self.arguments.items()
            if argument not in self.stage.unkeyed
            # Scores of heads keep the keys that they had before there were scores of groups.
            and (argument, value) != ("unit", "head")
        }

    @cached_property
    def key(self) -> str:
        """The cache key, hex SHA-256."""
        return sha256_of_json(
            {
                "format": KEY_FORMAT,
                "stage": self.stage.name,
                "version": self.stage.version,
                "arguments": self.spec,
            }
        )

    @cached_property
    def group_key(self) -> str:
        """Equal for steps that differ in their seed alone, which run in one call."""
        return self.with_arguments(seeds=()).key if self.stage.by_seed else self.key

    @property
    def address(self) -> str:
        """``stage/key``, the address of its artifact inside a store."""
        return f"{self.stage.name}/{self.key}"

    @cached_property
    def inputs(self) -> tuple[Step, ...]:
        """The steps whose artifacts it reads, each once."""
        return tuple(dict.fromkeys(_steps_in(self.arguments)))

    def with_arguments(self, **arguments: Any) -> Step:
        """Return the step with some arguments changed."""
        return replace(self, arguments={**self.arguments, **arguments})

    def folder(self, store: Store) -> str:
        """Return the full address of its artifact: a folder, or a URI."""
        return store.folder(self.stage.name, self.key)

    def reference(self, store: Store) -> ArtifactReference:
        """Return its finished artifact. Raises ArtifactError if it is not complete."""
        return store.reference(self.stage.name, self.key)

    def is_complete(self, store: Store) -> bool:
        """Return whether its artifact is complete, by its metadata and the sizes of its files."""
        return store.damage(self.stage.name, self.key) is None


def key_content(value: Any) -> Any:
    """Return a value as it enters a key, as JSON.

    Steps are in it by their keys, and what has a ``digest`` by that. Of a task the name and the
    source are left out: the content of the source is in the key of its text.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Step():
            return value.key
        case EncoderReference():
            return {name: getattr(value, name) for name in _KEYED_BY_ENCODER}
        case StudySpec():
            # Studies that were run before there was a unit keep their keys.
            unkeyed = {"execution", "unit"} if value.unit == "head" else {"execution"}
            return value.model_dump(mode="json", exclude=unkeyed)
        case TaskSpec():
            return {
                name: key_content(setting)
                for name, setting in vars(value).items()
                if name not in ("name", "source")
            }
        case Mapping():
            pairs = [[key_content(key), key_content(item)] for key, item in value.items()]
            # A mapping has no order; keys may be of several types, which do not compare.
            return sorted(pairs, key=repr)
        case tuple() | list():
            return [key_content(item) for item in value]
        case _ if hasattr(value, "digest"):
            return value.digest or "not known"
        case _ if is_dataclass(value) or isinstance(value, BaseModel):
            return {name: key_content(item) for name, item in vars(value).items()}
    raise TypeError(f"a key cannot hold a {type(value).__name__}")


def _steps_in(value: Any) -> Iterator[Step]:
    """Yield all steps in an argument, however deep in mappings, tuples and dataclasses."""
    if isinstance(value, Step):
        yield value
        return
    container = vars(value) if is_dataclass(value) else value
    if isinstance(container, Mapping):
        container = tuple(container.values())
    if isinstance(container, tuple):
        for item in container:
            yield from _steps_in(item)


def with_inputs(steps: Iterable[Step]) -> list[Step]:
    """Return steps with all that they need, each once and after its inputs."""
    ordered: dict[Step, None] = {}
    for step in steps:
        for needed in (*with_inputs(step.inputs), step):
            ordered.setdefault(needed)
    return list(ordered)


@dataclass(frozen=True)
class StepGroup:
    """Steps that run in one call: a single step, or those that differ in their seed alone.

    Seeds share the features of a frozen encoder, and each has an artifact of its own, so a study
    with one more seed computes that seed alone.
    """

    steps: tuple[Step, ...]

    @property
    def first(self) -> Step:
        """The first step; what it has in common with the others holds for the group."""
        return self.steps[0]

    @property
    def name(self) -> str:
        """``probe · cola · seed 0`` and the same of seed 1 are ``probe · cola · seeds 0, 1``."""
        if len(self.steps) == 1:
            return self.first.name
        names = [step.name.rpartition(" · seed ") for step in self.steps]
        return f"{names[0][0]} · seeds {', '.join(seed for _, _, seed in names)}"

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The steps whose artifacts it reads, each once."""
        return tuple(dict.fromkeys(needed for step in self.steps for needed in step.inputs))


def group_by_seed(steps: Iterable[Step]) -> list[StepGroup]:
    """Return steps in groups that run in one call, in the order of their first steps."""
    groups: dict[str, list[Step]] = {}
    for step in steps:
        groups.setdefault(step.group_key, []).append(step)
    return [StepGroup(tuple(members)) for members in groups.values()]
