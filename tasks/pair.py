"""One encoder on one task, and the steps that all others of the pair read: its text, its average.

A step is given no more of a task than it uses (``reduced``), so nothing else can be in its result,
or in its key.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from pydantic import BaseModel

from papa.models.reference import EncoderReference
from papa.scores.custom import CustomCode
from papa.spec import Columns, Metric, StudySpec, TaskSpec
from papa.tasks.average import average
from papa.tasks.inputs import StudyInputs
from papa.tasks.step import Step
from papa.tasks.tokenise import tokenise

_Spec = TypeVar("_Spec", bound=BaseModel)


@dataclass(frozen=True)
class Pair:
    """One encoder on one task of a study."""

    inputs: StudyInputs
    encoder: EncoderReference
    task: TaskSpec

    @property
    def study(self) -> StudySpec:
        """The study."""
        return self.inputs.study

    @property
    def label(self) -> str:
        """The encoder's short name in tables."""
        return self.inputs.encoder_labels[self.encoder]

    @property
    def title(self) -> str:
        """Encoder and task in the names of steps."""
        return f"{self.label} · {self.task.name}"

    @property
    def head_count(self) -> int:
        """How many heads the encoder has in all, L·H."""
        return self.encoder.layers * self.encoder.heads

    @property
    def heads_per_unit(self) -> int:
        """How many heads are scored and become constant as a whole."""
        return self.encoder.heads_per_unit(self.study.unit)

    @property
    def unit_count(self) -> int:
        """How many units of heads the encoder has in all."""
        return self.head_count // self.heads_per_unit

    @property
    def code(self) -> CustomCode | None:
        """The user's own metric, probe or score."""
        return self.inputs.code.get(self.task)

    @cached_property
    def text(self) -> Step:
        """The task's own text in slots."""
        return tokenise_step(self, self.task)

    @cached_property
    def average(self) -> Step:
        """The encoder's average attention over the task's own text."""
        return average_step(self, self.task)

    def name_of(self, stage: str, seed: int, seeds: tuple[int, ...]) -> str:
        """Return a step's name, with its seed where there are others."""
        name = f"{stage} · {self.title}"
        return f"{name} · seed {seed}" if len(seeds) > 1 else name


def tokenise_step(pair: Pair, corpus: TaskSpec) -> Step:
    """Return the step that tokenises a text; of the encoder it depends on the tokenizer alone."""
    tokenizer = replace(pair.encoder, digest="", layers=0, heads=0, width=0, precision="float32")
    settings = ["source", "columns", "labels", "train_rows", "validation_rows", "sample_seed"]
    if corpus.kind == "mlm":
        settings.append("mask_seed")
    # These two also restrict or rewrite the labels (papa/text/labels.py).
    reads_more = corpus.metric in ("f1", "entity_f1")
    metric = corpus.metric if reads_more else equivalent_metric(corpus, "regression")
    return tokenise.step(
        f"tokenise · {pair.label} · {corpus.name}",
        tokenizer=tokenizer,
        task=task_of_only(corpus, *settings, "validation_slots", metric=metric),
        layout=pair.study.layout,
        fingerprint=pair.inputs.fingerprints[corpus.source],
    )


def average_step(pair: Pair, corpus: TaskSpec, *, plain: bool = False) -> Step:
    """Return the step that averages attention over a text: of the model with the task's native
    head, or of the plain encoder in the layout, as for a probe.
    """
    return average.step(
        f"average · {pair.label} · {corpus.name}",
        encoder=pair.encoder,
        text=pair.text if corpus == pair.task else tokenise_step(pair, corpus),
        slots=corpus.slots,
        task=None if plain else native_task(pair.task),
    )


def native_task(task: TaskSpec) -> TaskSpec | None:
    """Return what of a task decides which native head runs and how its outputs are read; None for a
    task with a probe.
    """
    if task.head == "probe":
        return None
    metric = equivalent_metric(task, "of_embeddings")
    return task_of_only(task, "head", "labels", columns=label_column(task), metric=metric)


def equivalent_metric(task: TaskSpec, *properties: str) -> Metric:
    """Return the metric for a step that reads only some properties of the task's metric.

    A step's key holds the metric, so tasks whose metrics differ in nothing that the step reads
    would compute it twice. They share it, as each has the first metric with its properties.

    Args:
        task: The whole task.
        properties: Names of properties of ``TaskSpec`` that depend on its metric.
    """
    candidates: tuple[Metric, ...] = ("accuracy", "spearman", "agreement", "cosine", task.metric)

    def has_same_properties(metric: Metric) -> bool:
        other = task.model_copy(update={"metric": metric})
        return all(getattr(other, name) == getattr(task, name) for name in properties)

    return next(filter(has_same_properties, candidates))


def reduced(model: _Spec, *names: str, **values: object) -> _Spec:
    """Return a specification that has these settings alone.

    To read another setting is an AttributeError.

    Args:
        model: The whole specification.
        names: Settings that are kept.
        values: Settings with other values.
    """
    settings = {**{name: getattr(model, name) for name in names}, **values}
    specification = type(model).model_construct(**settings)
    for default in vars(specification).keys() - settings:
        del vars(specification)[default]
    return specification


def task_of_only(task: TaskSpec, *names: str, **values: object) -> TaskSpec:
    """Return a task with these settings alone; it keeps its kind, its slots, and its name for
    messages.
    """
    return reduced(task, "name", "kind", "slots", *names, **values)


def label_column(task: TaskSpec) -> Columns:
    """Return columns that say only whether a task has labels."""
    return reduced(task.columns, label="label" if task.columns.label else None)
