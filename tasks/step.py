"""A step: a stage of the pipeline with its arguments, its cache key, and the artifact it leaves.

Keys are known before anything runs: they are made of the stage's name and version and of the
step's arguments, with other steps by their keys and encoders by the digests of their files.
"""

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
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import BaseModel

from papa.files import sha256_of_json
from papa.models.native import NativeReference
from papa.models.reference import EncoderReference
from papa.progress import OnEpoch, Progress, ignore_epoch
from papa.spec import ExecutionSpec, StudySpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, published
from papa.storage.files import Files
from papa.storage.store import Store
from papa.worker import Executor, ModelReference

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from papa.models.encoder import Encoder
    from papa.native.passes import NativeHead
    from papa.scores.custom import CustomScore
    from papa.text.corpus import TokenisedCorpus, TokenisedSplit

KEY_FORMAT = 3
"""Raised where keys are made in another way, so that no artifact made before is read."""
_LOOKUP_THREADS = 16
"""Looking up an artifact behind a URI mostly waits for the network."""
_KEYED_BY_ENCODER = (
    "digest",
    "tokenizer_digest",
    "model_type",
    "layers",
    "heads",
    "width",
    "precision",
)
"""What of an encoder enters a key: its content, not its name or where its files lie."""

Place = Literal["worker", "driver", "all workers"]
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


class Stage:
    """A function of the pipeline. Called with a name and its arguments, it returns a ``Step``.

    Attributes:
        body: The function that computes the artifact: ``body(context, *arguments)``.
        name: As people see it in the store, in Prefect and in MLflow.
        version: Part of the key; raised by hand when the body computes other results.
        place: Where the body runs (see ``stage``).
        unkeyed: Names of arguments that change no result.
        by_seed: Whether steps that differ in their seed alone run in one call (see ``stage``).
    """

    def __init__(
        self,
        body: Callable[..., None],
        name: str,
        version: int,
        place: Place,
        unkeyed: tuple[str, ...] = (),
        by_seed: bool = False,
    ) -> None:
        functools.update_wrapper(self, body)
        self.body = body
        self.name = name
        self.version = version
        self.place = place
        self.unkeyed = frozenset(unkeyed)
        self.by_seed = by_seed

    def __call__(self, name: str, *arguments: Any, **named_arguments: Any) -> Step:
        bound = inspect.signature(self.body).bind(None, *arguments, **named_arguments)
        bound.apply_defaults()
        _context, *bound_arguments = bound.arguments.items()
        return Step(self, name, dict(bound_arguments))

    def __reduce__(self) -> str:
        # By reference, as a function is pickled: workers import the module.
        return self.__qualname__  # type: ignore[attr-defined]


def stage(
    name: str, *unkeyed: str, version: int, place: Place = "worker", by_seed: bool = False
) -> Callable[[Callable[..., None]], Stage]:
    """Make a function a ``Stage`` of the pipeline.

    Args:
        name: The stage's name.
        unkeyed: Arguments that change no result, and so are left out of the key.
        version: Raise it by hand when the function gives other results for the same arguments.
        place: "worker": on the next idle worker, which loads the model of the step (``model_of``)
            and gives it to the body as ``context.model``. "driver": in the driver, or on a
            worker of its machine, where the input's files lie. "all workers": in a thread of the
            driver, whose body has all workers at hand (``context.executor``).
        by_seed: The argument ``seeds`` is one seed in each step. Steps that differ in nothing else
            run in one call with all their seeds, and the body publishes an artifact for each.
    """
    return lambda body: Stage(body, name, version, place, unkeyed, by_seed)


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
            argument: in_key(value)
            for argument, value in self.arguments.items()
            if argument not in self.stage.unkeyed
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
    def key_of_all_seeds(self) -> str:
        """The key of what steps that differ in their seed alone have in common."""
        return self.changed(seeds=()).key if self.stage.by_seed else self.key

    @property
    def address(self) -> str:
        """``stage/key``, the address of its artifact inside a store."""
        return f"{self.stage.name}/{self.key}"

    @cached_property
    def inputs(self) -> tuple[Step, ...]:
        """The steps whose artifacts it reads, each once."""
        return tuple(dict.fromkeys(_steps_in(self.arguments)))

    def changed(self, name: str | None = None, **arguments: Any) -> Step:
        """The step with another name, or with some arguments changed."""
        return Step(self.stage, name or self.name, {**self.arguments, **arguments})

    def folder(self, store: Store) -> str:
        """The full address of its artifact: a folder, or a URI."""
        return store.folder(self.stage.name, self.key)

    def reference(self, store: Store) -> ArtifactReference:
        """Its finished artifact. Raises ArtifactError if it is not complete."""
        return store.reference(self.stage.name, self.key)

    def is_complete(self, store: Store) -> bool:
        """Whether its artifact is complete, by its metadata and the sizes of its files."""
        return store.damage(self.stage.name, self.key) is None


def in_key(value: Any) -> Any:
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
            return value.model_dump(mode="json", exclude={"execution"})
        case TaskSpec():
            return {
                name: in_key(setting)
                for name, setting in vars(value).items()
                if name not in ("name", "source")
            }
        case Mapping():
            pairs = [[in_key(key), in_key(item)] for key, item in value.items()]
            return sorted(pairs, key=repr)
        case tuple() | list():
            return [in_key(item) for item in value]
        case _ if hasattr(value, "digest"):
            return value.digest or "not known"
        case _ if is_dataclass(value) or isinstance(value, BaseModel):
            return {name: in_key(item) for name, item in vars(value).items()}
    raise TypeError(f"a key cannot hold a {type(value).__name__}")


def _steps_in(value: Any) -> Iterator[Step]:
    """All steps in an argument, however deep in mappings, tuples and dataclasses."""
    if isinstance(value, Step):
        yield value
        return
    container = vars(value) if is_dataclass(value) else value
    if isinstance(container, Mapping):
        items: Iterable[Any] = container.values()
    elif isinstance(container, tuple):
        items = container
    else:
        return
    for item in items:
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
        groups.setdefault(step.key_of_all_seeds, []).append(step)
    return [StepGroup(tuple(members)) for members in groups.values()]


def model_of(step: Step) -> ModelReference | None:
    """Return what a worker loads for a step: its ``encoder``, or that model with its native head,
    where the step's task is answered by it, or the model is a decoder, which has no other.
    """
    encoder = step.arguments.get("encoder")
    if encoder is None:
        return None
    task: TaskSpec | None = step.arguments.get("task")
    if encoder.causal:
        # What of a task a stage is given may be less than says what its head is.
        return NativeReference(encoder, step["text"]["task"])
    # The task of a step that trains probes, or that reads no loss, has no key ``head``.
    if getattr(task, "head", "probe") == "native":
        return NativeReference(encoder, cast("TaskSpec", task))
    return cast("EncoderReference", encoder)


def in_threads(
    function: Callable[[_Value], _Result], values: Iterable[_Value]
) -> dict[_Value, _Result]:
    """Return ``function`` of each value, computed in threads; after an error no other is begun."""
    values = list(values)
    with ThreadPoolExecutor(_LOOKUP_THREADS) as executor:
        return dict(zip(values, executor.map(function, values), strict=True))


@dataclass(frozen=True)
class Context:
    """What the body of a stage may use beside its arguments.

    Attributes:
        steps: The steps that the call runs: one, or several seeds of a stage ``by_seed``.
        store: Where its artifact and those of its inputs lie.
        execution: Settings that never change results.
        progress: Called with (done, total).
        model: What ``model_of`` the step says, loaded on this worker: read it as
            ``loaded_encoder``, or by ``open_native_head``.
        on_epoch: Called after each epoch of training with (epoch, loss by seed).
        workers: All workers, for a stage that runs on "all workers"; read it as ``executor``.
    """

    steps: tuple[Step, ...]
    store: Store
    execution: ExecutionSpec
    progress: Progress
    model: Encoder | PreTrainedModel | None = None
    on_epoch: OnEpoch = ignore_epoch
    workers: Executor | None = None
    _started: float = field(default_factory=time.monotonic)
    _processor_started: float = field(default_factory=time.process_time)

    @property
    def step(self) -> Step:
        """The step that runs; of several seeds the first."""
        return self.steps[0]

    @property
    def executor(self) -> Executor:
        """All workers."""
        assert self.workers is not None, 'a stage on "all workers" has them'
        return self.workers

    @property
    def loaded_encoder(self) -> Encoder:
        """The argument ``encoder``, loaded."""
        assert self.model is not None, "the step has an encoder"
        return cast("Encoder", self.model)

    @cached_property
    def artifacts(self) -> dict[Step, ArtifactReference]:
        """The artifacts of its inputs. Raises ArtifactError if one is not complete."""
        return in_threads(lambda step: step.reference(self.store), self.step.inputs)

    def open_text(self, text: Step) -> TokenisedCorpus:
        """Open the tokenised text that an input holds."""
        from papa.text.corpus import open_corpus

        return open_corpus(self.artifacts[text])

    def open_native_head(
        self,
        task: TaskSpec,
        encoder: EncoderReference,
        split: TokenisedSplit,
        label_names: Sequence[str] | None = None,
        score: CustomScore | None = None,
    ) -> NativeHead:
        """Open the model that this worker has loaded with its native head, for a task.

        Args:
            task: The task, which says what head it is.
            encoder: The model.
            split: The texts.
            label_names: The task's classes, where its labels are read.
            score: The user's own, in place of answers.
        """
        from papa.native.loading import open_native

        assert self.model is not None, "the step has a native head"
        model = cast("PreTrainedModel", self.model)
        return open_native(model, task, encoder, split, label_names, score)

    @contextmanager
    def scratch_folder(self) -> Iterator[Path]:
        """Yield a new folder for features on disk, which is removed when the block ends."""
        scratch = Files(self.store.scratch)
        name = f"features-{self.step.key[:16]}"
        # A killed call may have left its features there.
        scratch.remove(name)
        try:
            with scratch.filled(name) as folder:
                yield folder
        finally:
            scratch.remove(name)

    def time_spent(self) -> dict[str, Any]:
        """The device and its seconds: processor time on a CPU, elapsed time on a GPU."""
        device = "cpu" if self.model is None else str(self.model.device.type)
        if device == "cpu":
            seconds = time.process_time() - self._processor_started
        else:
            seconds = time.monotonic() - self._started
        return {"worker_seconds": seconds, "device": device}

    def metadata(self, step: Step | None = None) -> dict[str, Any]:
        """What the artifact of a step says of itself.

        Args:
            step: One of ``steps``; None for the only one.
        """
        step = step or self.step
        spent = self.time_spent()
        # Each of several seeds has its share of the call's time.
        return {
            "stage": step.stage.name,
            "name": step.name,
            "key": step.key,
            "spec": step.spec,
            "stage_version": step.stage.version,
            "inputs": [needed.address for needed in step.inputs],
            "seconds": (time.monotonic() - self._started) / len(self.steps),
            "worker_seconds": spent["worker_seconds"] / len(self.steps),
            "device": spent["device"],
        }

    @contextmanager
    def published(self, step: Step | None = None, **facts: Any) -> Iterator[Path]:
        """Yield a folder to fill, which becomes the artifact of a step.

        Args:
            step: One of ``steps``; None for the only one.
            facts: Further metadata.
        """
        address = (step or self.step).folder(self.store)
        with published(address, {**self.metadata(step), **facts}) as folder:
            yield folder
