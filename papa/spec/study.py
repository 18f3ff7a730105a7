"""A study's specification, of which ``execution`` alone changes no result and enters no key."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, FilePath, field_validator, model_validator

from papa.errors import joined, shown
from papa.spec.orders import Order, Unit, default_order
from papa.spec.substitutes import SUBSTITUTES, entry_of
from papa.spec.task import (
    Amount,
    Frozen,
    Name,
    NotNegative,
    Positive,
    Precision,
    ProbeSpec,
    Rate,
    Seed,
    TaskSpec,
    Text,
    one_of,
)

SubstituteKind = Annotated[str, AfterValidator(lambda kind: one_of(SUBSTITUTES, kind))]


class SubstituteSpec(Frozen):
    """What replaces attention: its kind, its parameters and, for ``average``, its text."""

    kind: SubstituteKind
    """What stands in attention's place: the average; a control such as identity, toeplitz or zeros
    (paper, Section 5.2); a trained one; a constant output (docs/method.md)."""
    corpus: TaskSpec | None = None
    """average: over this task's training text, not the study's (paper, Section 5.3, Table 2)."""
    rows: Positive | None = None
    """average: over so many training rows; null takes all. A larger sample holds a smaller one."""
    start: Literal["toeplitz", "average"] = "toeplitz"
    """trained: the matrices that training starts from."""
    window: Positive | None = None
    """local: how many slots to either side a token attends to; null takes 2."""
    rank: Positive | None = None
    """low_rank: the rank to which the average is approximated; null takes 4."""
    largest: NotNegative | None = None
    """low_rank: how many of the average's largest entries are kept as they are; null takes 0."""
    sinks: NotNegative | None = None
    """streaming: first tokens that every token sees; null takes 4."""
    recent: Positive | None = None
    """streaming: how many last tokens a token sees, itself among them; null takes 64."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_kind(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        set_values = {name: value for name, value in values.items() if value is not None}
        return {**entry_of(str(values.get("kind"))).parameters, **set_values}

    @model_validator(mode="after")
    def _has_keys_of_its_kind_only(self) -> SubstituteSpec:
        keys = {kind: tuple(entry.parameters) for kind, entry in SUBSTITUTES.items()}
        for kind, names in {**keys, "average": ("corpus", "rows")}.items():
            for name in names:
                if kind != self.kind and getattr(self, name) is not None:
                    raise ValueError(f"{name} belongs to kind '{kind}', not '{self.kind}'")
        return self

    @property
    def is_trained(self) -> bool:
        """Whether it is trained with the probe of each seed."""
        return entry_of(self.kind).origin == "training"

    @property
    def initial_kind(self) -> SubstituteKind:
        """The substitute that training starts from; itself where it is not trained."""
        starts = entry_of(self.kind).starts
        if not starts:
            return self.kind
        return self.start if self.start in starts else starts[0]

    @property
    def parameters(self) -> dict[str, int]:
        """The values of the kind's own keys."""
        return {name: getattr(self, name) for name in entry_of(self.kind).parameters}

    @property
    def label(self) -> str:
        """The name in tables and plots."""
        words = [self.kind, *map(str, self.parameters.values())]
        words += [self.corpus.name] if self.corpus else []
        words += [f"{self.rows} rows"] if self.rows else []
        words += [self.start] if self.kind == "trained" and self.start != "toeplitz" else []
        return ":".join(words)


class EncoderSpec(Frozen):
    """A frozen pretrained encoder: a hub name, a local folder, or ``embedded/all-MiniLM-L6-v2``."""

    name: Text
    """A name on the hub, a folder (relative to the study's file), or the embedded one."""
    revision: str | None = None
    """A branch, tag or commit on the hub; None takes the main branch."""


Scores = tuple[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], ...]


class ExternalScores(Frozen):
    """User-supplied scores of all heads; the smallest become constant first."""

    name: Text
    """What orders call them after ``scores:``."""
    values: Annotated[Scores, Field(min_length=1)]
    """A list for each layer, with a number for each head."""


class CodeSpec(Frozen):
    """A file of custom code, as the command line gave it."""

    name: Text
    """What stands before the colon in ``module:name``: the file's name without .py."""
    sha256: str
    """Of its text, by which what it computes is known."""


AS_THE_AUTHORS_RAN = "as_the_authors_ran"
"""The key of a study file that turns every switch of docs/fidelity.md to the authors' side."""
Entry = TypeVar("Entry")


def no_repeats(values: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the entries, no two of which have the same name."""
    labels = [getattr(value, "label", None) or getattr(value, "name", value) for value in values]
    repeated = dict.fromkeys(shown(label) for label in labels if labels.count(label) > 1)
    if repeated:
        raise ValueError(f"{joined(repeated)} is listed twice: keep one")
    return values


CONTROL_SEEDS = 5
"""The fewest ranking seeds with which the test against λ of shuffled labels can be significant at
5 %: they have 32 arrangements."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(no_repeats)]


class LayoutSpec(Frozen):
    """Where the paper and its authors' code differ on the layout (docs/fidelity.md)."""

    one_text_truncation: Literal["full", "half"] = "full"
    """full: up to S-2 text tokens (paper); half: S/2-1 (authors' code)."""
    segment_ids: Literal["follow", "stay"] = "follow"
    """follow: segment ids move with their tokens; stay: they keep the tokenizer's positions."""


class RankingSpec(Frozen):
    """How λ is trained (paper, Section 3.2): with the probe, on the task's training text."""

    epochs: Positive | None = None
    """None takes the task's ``probe.epochs``, as the authors did."""
    learning_rate: Rate | None = None
    """For θ and the probe; None takes the task's."""
    rows: Positive | None = None
    """Heads are scored on a sample of this many training rows for each seed. Seeds such as 0, 1, 2
    have no row in common where the split has enough. None takes 256 for effect, shapley and greedy,
    and all rows for the other methods; of a native head, the seeds divide them."""
    evaluations: Positive | None = None
    """How often shapley and greedy may compute the loss of a set of heads, for each seed; None
    takes 2,000, and for large models as many as the method needs."""
    control: bool = True
    """Where five seeds or more have ``rows`` of their own, λ is trained on shuffled labels as well,
    and the report says whether the head order owes anything to the labels."""

    def training(self, probe: ProbeSpec, learning_rate: float | None = None) -> ProbeSpec:
        """Return how λ or gates are trained: as a task's probe, but for the epochs and the learning
        rate that are set here, or a method's own ``learning_rate``.
        """
        changes = {
            "epochs": self.epochs or probe.epochs,
            "learning_rate": self.learning_rate or learning_rate or probe.learning_rate,
        }
        return probe.model_copy(update=changes)


class FeaturesSpec(Frozen):
    """The precision in which features are stored."""

    dtype: Precision = "float32"
    """bfloat16 takes half the disk."""


class ExecutionSpec(Frozen):
    """What changes speed, and results by their rounding alone."""

    workers: Positive | None = None
    """Ray actors, one thread (or one GPU) each; None takes one for each CPU core or GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes the GPU where there is one."""
    batch_tokens: Positive | None = None
    """Tokens in a micro-batch, padding included; None, and passes with ``probe.encoder_dropout``,
    take the fastest for the device."""
    shard_rows: Positive = 1024
    """Rows in a shard of tokenised text: what the loss of a worker repeats."""
    features_budget_gb: Amount = 20.0
    """Disk for one cell's features; beyond it the encoder runs once per epoch for all seeds."""


def _default_orders(validated: dict[str, Any]) -> tuple[Order, ...]:
    """Return the head orders of a study that names none."""
    # pydantic before 2.12 calls this without tasks, too, if they are refused.
    tasks: tuple[TaskSpec, ...] = validated.get("tasks", ())
    return (default_order(task.head for task in tasks),)


class StudySpec(Frozen):
    """A study: encoders × tasks × substitutes × head orders × keep × probe seeds."""

    name: Name
    """The name of its results; letters, digits, dots, dashes and underscores."""
    encoders: Annotated[tuple[EncoderSpec, ...], Field(min_length=1)]
    """Hub names such as google-bert/bert-base-uncased, folders, or the embedded one."""
    tasks: Annotated[tuple[TaskSpec, ...], Field(min_length=1)]
    """What the encoders are measured on: known tasks, changed key by key, or your own."""
    substitutes: Annotated[tuple[SubstituteSpec, ...], Field(min_length=1)] = (
        SubstituteSpec(kind="average"),
    )
    """What replaces attention (docs/method.md)."""
    orders: Annotated[tuple[Order, ...], Field(min_length=1)] = Field(
        default_factory=_default_orders
    )
    """In which order heads become constant (docs/how-to/rank-heads.md): names, 'scores:FILE', or
    custom code, module:name. Each also from its end: reversed:distance. Without this key [effect]
    if all tasks have head: native, else [lambda]."""
    scores: tuple[ExternalScores, ...] = ()
    """Scores of heads that orders name; those of files and of code are added automatically."""
    code: tuple[CodeSpec, ...] = ()
    """Files of custom code; added automatically from --code."""
    keep: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (1.0, 0.5, 0.125, 0.0625, 0.0)
    """Shares of heads that stay input-dependent; drops are measured against 1, the original."""
    unit: Unit = "head"
    """What is scored and becomes constant as a whole: a head, or kv_group, the heads of a decoder
    that share keys and values. A cache needs no keys of such a group if all of its heads are
    constant, and no values either if they output zeros."""
    probe_seeds: Seeds = (0, 1, 2)
    """A probe is trained with each seed; intervals need two or more."""
    ranking_seeds: Seeds = (0, 1, 2)
    """λ is trained once with each seed, and heads become constant by its mean. Random head orders
    are drawn from the first, one for each probe seed."""
    ranking: RankingSpec = RankingSpec()
    layout: LayoutSpec = LayoutSpec()
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """The precision in which encoders compute. bfloat16 needs a GPU, or a CPU that has it; sums,
    softmax, norms and the optimiser stay float32. ``auto`` is bfloat16 on a GPU where weights are
    stored in it, else float32."""
    features: FeaturesSpec = FeaturesSpec()
    reference: FilePath | None = None
    """A CSV of the paper's own numbers, which the report compares with ours."""
    execution: ExecutionSpec = ExecutionSpec()

    _listed_once = field_validator(
        "encoders", "tasks", "substitutes", "orders", "scores", "code", "keep"
    )(no_repeats)

    @field_validator("name")
    @classmethod
    def _no_file(cls, name: str) -> str:
        if name.lower().endswith((".yaml", ".failed", ".jsonl")):
            raise ValueError(
                "a store has its own files with this ending: give a name without .yaml, "
                ".failed or .jsonl at its end"
            )
        return name
