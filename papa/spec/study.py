"""The study's specification: YAML into frozen models, resolved once, at the top.

What changes results (encoders, tasks, constants, orders, fractions, seeds, ranking, layout,
features) is kept apart from what only changes speed (``execution``), which never enters a cache
key.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    FilePath,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from papa.errors import joined, shown
from papa.spec.controls import CONTROLS
from papa.spec.data import Columns, Source
from papa.spec.derived import DERIVED, parameters_of
from papa.spec.frozen import Frozen
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import HEAD_ORDERS, REVERSED, drawn_from, scored_by, scores_in
from papa.spec.outputs import OPTIMAL, OUTPUTS

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
TaskKind = Literal["text", "pair", "words", "mlm", "causal"]
Metric = Literal[
    "accuracy",
    "matthews",
    "f1",
    "entity_f1",
    "token_f1",
    "bare_entity_f1",
    "spearman",
    "negative_log_perplexity",
    "agreement",
    "cosine",
    "similarities",
    "nearest_1",
    "nearest_10",
]
METRICS_OF_KINDS: dict[TaskKind, tuple[Metric, ...]] = {
    "text": ("accuracy", "matthews", "f1", "spearman"),
    "pair": ("accuracy", "matthews", "f1", "spearman"),
    "words": ("entity_f1", "token_f1", "bare_entity_f1", "accuracy"),
    "mlm": ("negative_log_perplexity",),
    "causal": ("negative_log_perplexity",),
}
"""What a probe on a task of each kind may be scored by."""
EMBEDDING_METRICS: tuple[Metric, ...] = ("nearest_10", "nearest_1", "similarities", "cosine")
"""What a sentence encoder keeps of its own embeddings."""
UNLABELLED_METRICS: tuple[Metric, ...] = ("agreement", *EMBEDDING_METRICS)
"""Scores of a model against its own original answers, for ``head: own``."""
OWN_METRICS_OF_KINDS: dict[TaskKind, tuple[Metric, ...]] = {
    "text": UNLABELLED_METRICS,
    "pair": ("agreement",),
    "words": ("agreement",),
    "mlm": ("agreement",),
    "causal": ("agreement",),
}
"""What else a model's own head on a task of each kind may be scored by."""
Precision = Literal["float32", "bfloat16"]
PrecisionChoice = Literal["float32", "bfloat16", "auto"]


def listed(values: Any) -> str:
    """Names as a message lists them."""
    return ", ".join(map(str, values))


def _refuse_unknown(value: object, names: Iterable[str]) -> None:
    """Refuses what a table does not name at the time, as pydantic refuses what a ``Literal`` does
    not name.
    """
    *most, last = known = list(names)
    if value not in known:
        raise PydanticKnownError(
            "literal_error", {"expected": f"{listed(map(repr, most))} or {last!r}"}
        )


def constants_kinds() -> tuple[str, ...]:
    """The kinds of constants that a study may name."""
    return ("average", *CONTROLS, *DERIVED, *OUTPUTS, "trained")


def _known_constants(value: object) -> object:
    _refuse_unknown(value, constants_kinds())
    return value


def _known_order(value: object) -> object:
    if not isinstance(value, str) or scores_in(value) is None:
        _refuse_unknown(
            value.removeprefix(REVERSED) if isinstance(value, str) else value,
            (*HEAD_ORDERS, *HEAD_SCORES),
        )
    return "lambda_reversed" if value == f"{REVERSED}lambda" else value


ConstantsKind = Annotated[str, BeforeValidator(_known_constants)]
Order = Annotated[str, BeforeValidator(_known_order)]


class EncoderSpec(Frozen):
    """A frozen pretrained encoder: a hub name, a local folder, or ``embedded/all-MiniLM-L6-v2``."""

    name: Annotated[str, Field(min_length=1)]
    """A name on the hub, a folder (relative to the study's file),
    or ``embedded/all-MiniLM-L6-v2``.
    """
    revision: str | None = None
    """A branch, tag or commit on the hub; None takes the main branch."""


class ProbeSpec(Frozen):
    """How the probe is trained: AdamW at a constant rate (paper, Section 3.3 and App. B)."""

    learning_rate: Rate
    """Of AdamW, the same at every step."""
    batch_size: Positive
    """Rows in a minibatch."""
    epochs: Positive
    """Passes over the training rows; the score is that after the last."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """AdamW's decoupled decay."""
    adam_epsilon: Rate = 1e-8
    """AdamW's ε, added before the bias correction (docs/fidelity.md)."""
    max_grad_norm: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """The norm to which a seed's gradients are clipped, over all its trained parameters; 0 or null
    does not clip.
    """
    encoder_dropout: bool = False
    """While training, keep the encoder's dropout on, and that of the authors' sequence probes
    (docs/fidelity.md).
    """

    @field_validator("max_grad_norm", mode="before")
    @classmethod
    def _null_is_no_limit(cls, value: Any) -> Any:
        return 0.0 if value is None else value


class TaskSpec(Frozen):
    """A task: its text, its labels, its layout length S and its probe."""

    name: Name
    """A known task's name, which gives all other keys, or that of your own."""
    kind: TaskKind
    """text: a label for each text; pair: for each two texts; words: for each word; mlm: masked
    words; causal: the next word of a decoder.
    """
    source: Source
    """Where its rows come from."""
    columns: Columns
    """Which columns of the source are read."""
    labels: tuple[str, ...] | None = None
    """Names of integer labels 0, 1, …; None takes the names from the source, or the sorted distinct
    training labels.
    """
    metric: Metric
    """What a score is; the kind of the task says which it may be."""
    positive: str | None = None
    """f1: the name of its positive class; None takes class 1."""
    slots: Annotated[int, Field(ge=4, le=2**16, multiple_of=2)]
    """S, the length of the layout that every input gets (paper, App. A)."""
    probe: ProbeSpec
    """How the probe is trained."""
    head: Literal["probe", "own"] = "probe"
    """What gives answers: a probe that is trained on the frozen encoder, or the model's own head,
    as it is.
    """
    train_rows: Positive | None = None
    """A sample of this many training rows, shuffled by ``sample_seed``; None keeps all, in their
    order.
    """
    validation_rows: Positive | None = None
    """A sample of this many validation rows, drawn by ``sample_seed``; None keeps all, in their
    order.
    """
    sample_seed: Seed = 0
    """What both samples are drawn from."""
    mask_seed: Seed = 0
    """Which tokens a masked language model must restore."""

    @model_validator(mode="before")
    @classmethod
    def _own_head_needs_no_probe(cls, values: Any) -> Any:
        """λ alone is trained then, by the same settings."""
        if not isinstance(values, dict) or "probe" in values:
            return values
        if values.get("head") == "own" or values.get("kind") == "causal":
            return {**values, "probe": {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4}}
        return values

    @model_validator(mode="after")
    def _columns_fit_the_kind(self) -> TaskSpec:
        needed = {
            "text": ("text", "label"),
            "pair": ("text", "text_pair", "label"),
            "words": ("words", "label"),
            "mlm": ("text",),
            "causal": ("text",),
        }[self.kind]
        if self.kind == "causal":
            self._is_for_a_decoder()
        unlabelled = self.metric in UNLABELLED_METRICS and self.kind in ("text", "pair")
        missing = [
            name
            for name in needed
            if getattr(self.columns, name) is None and not (unlabelled and name == "label")
        ]
        if missing:
            raise ValueError(f"a task of kind '{self.kind}' needs columns.{missing[0]}")
        metrics = METRICS_OF_KINDS[self.kind]
        if self.head == "own":
            metrics += OWN_METRICS_OF_KINDS[self.kind]
        elif self.metric in UNLABELLED_METRICS:
            raise ValueError(f"metric: {self.metric} compares a model with itself: set head: own")
        if self.metric not in metrics:
            raise ValueError(
                f"metric: a task of kind '{self.kind}' is scored by {listed(metrics)}, not "
                f"'{self.metric}'"
            )
        if self.positive is not None and self.metric != "f1":
            raise ValueError(
                f"positive: only metric f1 has a positive class, and the metric is {self.metric}"
            )
        if (
            self.positive is not None
            and self.labels is not None
            and self.positive not in self.labels
        ):
            known = joined(self.labels)
            raise ValueError(
                f"positive is {shown(self.positive)}, and no class has that name: use one of "
                f"{known}"
            )
        return self

    def _is_for_a_decoder(self) -> None:
        others = [name for name, column in self.columns if column is not None and name != "text"]
        if others:
            raise ValueError(
                f"a task of kind 'causal' reads plain text alone: remove columns.{others[0]}"
            )
        if self.head != "own":
            raise ValueError(
                "a task of kind 'causal' is answered by a decoder's own head: set head: own"
            )

    @property
    def regression(self) -> bool:
        """Whether the label is a number to predict (scored by rank correlation), not a class."""
        return self.metric == "spearman"

    @property
    def of_embeddings(self) -> bool:
        """Whether a sentence encoder's embeddings are what it is measured by."""
        return self.metric in EMBEDDING_METRICS

    @property
    def lambda_objective(self) -> str:
        """What λ is trained to keep low, in words."""
        if self.head == "probe":
            return "the loss of a probe"
        if self.of_embeddings:
            return "one less the cosine of embeddings to the original's"
        if self.metric == "agreement" and self.kind not in ("mlm", "causal"):
            return "the divergence of answers from the original's"
        return "the loss of the model's own head"

    @property
    def unlabelled(self) -> bool:
        """Whether its text has no labels of any kind."""
        return self.kind not in ("mlm", "causal") and self.columns.label is None


class ConstantsSpec(Frozen):
    """A kind of constant matrices and, for ``average``, the text it is taken over."""

    kind: ConstantsKind
    """average; a control: identity, toeplitz, zeros (paper, Section 5.2), previous, next, local,
    fibonacci; what is made of the average: low_rank, relative; trained; or a constant output:
    mean_output, mean_output_by_slot, resampled_output, optimal_output (docs/method.md).
    """
    corpus: TaskSpec | None = None
    """average: take it over this task's training text instead of the study's own (paper, Section
    5.3, Table 2).
    """
    rows: Positive | None = None
    """average: take it over a sample of this many training rows, whatever the task's probe is
    trained on; null takes all of the task's. A smaller sample is part of a larger one.
    """
    start: Literal["toeplitz", "average"] = "toeplitz"
    """trained: the matrices that training starts from."""
    window: Positive | None = None
    """local: how many slots to either side a token attends to; null takes 2."""
    rank: Positive | None = None
    """low_rank: the rank to which the average is approximated; null takes 4."""
    largest: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """low_rank: how many of the average's largest entries are kept as they are; null takes 0."""

    @model_validator(mode="before")
    @classmethod
    def _parameters_of_the_kind(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        own = parameters_of(values.get("kind"))
        return {**values, **{name: one for name, one in own.items() if values.get(name) is None}}

    @model_validator(mode="after")
    def _no_other_parameters(self) -> ConstantsSpec:
        for name in ("window", "rank", "largest"):
            if getattr(self, name) is not None and name not in self.parameters:
                kinds = [kind for kind in constants_kinds() if name in parameters_of(kind)]
                raise ValueError(f"{name} belongs to kind '{listed(kinds)}', not '{self.kind}'")
        return self

    @model_validator(mode="after")
    def _text_only_for_average(self) -> ConstantsSpec:
        for name in ("corpus", "rows"):
            if getattr(self, name) is not None and self.kind != "average":
                raise ValueError(f"{name} belongs to kind 'average', not '{self.kind}'")
        return self

    @property
    def is_trained(self) -> bool:
        """Whether it is trained with the probe of each seed."""
        return self.kind in ("trained", OPTIMAL)

    @property
    def parameters(self) -> dict[str, int]:
        """The values of the kind's own keys."""
        return {name: getattr(self, name) for name in parameters_of(self.kind)}

    @property
    def label(self) -> str:
        """The name in tables and plots."""
        if self.kind == "average":
            corpus = [self.corpus.name] if self.corpus else []
            return ":".join([self.kind, *corpus, *([f"{self.rows} rows"] if self.rows else [])])
        if self.kind == "trained" and self.start != "toeplitz":
            return f"{self.kind}:{self.start}"
        return ":".join([self.kind, *map(str, self.parameters.values())])


class HeadScores(Frozen):
    """Somebody's scores of all heads; the smallest become constant first. An order ``scores:FILE``
    reads them.
    """

    name: Annotated[str, Field(min_length=1)]
    """What orders call them after ``scores:``."""
    values: Annotated[
        tuple[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], ...], Field(min_length=1)
    ]
    """A list for each layer, with a number for each head."""

    @field_validator("values")
    @classmethod
    def _one_for_every_head(
        cls, values: tuple[tuple[float, ...], ...]
    ) -> tuple[tuple[float, ...], ...]:
        if not values[0] or any(len(row) != len(values[0]) for row in values):
            raise ValueError(
                "layers have scores of different numbers of heads: give one for every head"
            )
        return values


class LayoutSpec(Frozen):
    """Where the paper and its authors' code differ on the layout (docs/fidelity.md)."""

    one_text_truncation: Literal["full", "half"] = "full"
    """full: up to S-2 text tokens (paper); half: S/2-1 (authors' code)."""
    segment_ids: Literal["follow", "stay"] = "follow"
    """follow: segment ids move with their tokens; stay: they keep the positions the tokenizer gave
    them.
    """


def _no_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    labels = [getattr(value, "label", None) or getattr(value, "name", value) for value in values]
    repeated = [label for position, label in enumerate(labels) if label in labels[:position]]
    if repeated:
        raise ValueError(f"{shown(repeated[0])} is listed twice")
    return values


class RankingSpec(Frozen):
    """How λ is trained (paper, Section 3.2): together with the probe, on the task's
    training text.
    """

    epochs: Positive | None = None
    """None takes the task's ``probe.epochs``, as the authors did."""
    until_stable: bool = False
    """Stop early, once λ has moved from .5 and an epoch left the constant heads of every fraction
    as they were.
    """
    learning_rate: Rate | None = None
    """For θ and the probe; None takes the task's."""
    rows: Positive | None = None
    """Heads are scored on a sample of this many training rows, drawn by each seed; None takes
    all."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_no_repeats)] = (0, 1, 2)
    """λ is trained once with each, and heads become constant by its mean; of one seed nobody knows
    how certain it is. Random head orders are drawn from the first."""
    evaluations: Positive = 2_000
    """How often Shapley values and greedy orders (``papa.score_heads``) may compute the loss of a
    set of heads."""

    @model_validator(mode="before")
    @classmethod
    def _one_seed(cls, values: Any) -> Any:
        """Studies of older versions have one ``seed``."""
        if isinstance(values, dict) and "seed" in values and "seeds" not in values:
            return {
                **{name: value for name, value in values.items() if name != "seed"},
                "seeds": [values["seed"]],
            }
        return values

    def epochs_on(self, task: TaskSpec) -> int:
        """Epochs on a task's training text, at most."""
        return self.epochs or task.probe.epochs


class FeaturesSpec(Frozen):
    """The precision in which features are stored."""

    dtype: Precision = "float32"
    """bfloat16 takes half the disk."""


class ExecutionSpec(Frozen):
    """What changes speed and never results."""

    workers: Positive | None = None
    """Ray actors, one thread (or one GPU) each; None takes one for each CPU core or GPU."""
    ray_address: str | None = None
    """A Ray cluster: ``host:port`` on one of its nodes, ``ray://host:port`` from elsewhere; None is
    this machine.
    """
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes the GPU where there is one."""
    batch_tokens: Positive | None = None
    """Tokens in a micro-batch, padding included; None takes the fastest for the device, as passes
    with ``probe.encoder_dropout`` always do."""
    shard_rows: Positive = 1024
    """Rows in a shard of tokenised text: what the loss of a worker repeats."""
    features_budget_gb: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 20.0
    """Disk for one cell's features; beyond it the encoder runs once per epoch for all seeds."""


class StudySpec(Frozen):
    """A study: encoders × tasks × constants × head orders × fractions × seeds."""

    name: Name
    """The name of its results; letters, digits, dots, dashes and underscores."""
    encoders: Annotated[tuple[EncoderSpec, ...], Field(min_length=1)]
    """Frozen pretrained encoders: hub names such as google-bert/bert-base-uncased, folders, or the
    embedded one.
    """
    tasks: Annotated[tuple[TaskSpec, ...], Field(min_length=1)]
    """What the encoders are measured on: names of known tasks, changed key by key where need be, or
    your own.
    """
    constants: Annotated[tuple[ConstantsSpec, ...], Field(min_length=1)] = (
        ConstantsSpec(kind="average"),
    )
    """What replaces attention: a ladder of kinds, from nothing to trained matrices."""
    orders: Annotated[tuple[Order, ...], Field(min_length=1)] = ("lambda",)
    """In which order heads become constant: lambda, lambda_reversed, first_to_last, last_to_first
    or random; by a method that scores heads, the smallest score first: gradient, shapley, greedy,
    gates, and label-free confidence, variance or distance (to constant); or by somebody's scores,
    likewise: scores:FILE (``papa.load_scores`` says what it may hold). Each also from its end:
    reversed:distance."""
    scores: tuple[HeadScores, ...] = ()
    """Scores of heads that orders name; those of scores:FILE are added by themselves."""
    fractions: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (1.0, 0.5, 0.125, 0.0625, 0.0)
    """Shares of heads that stay input-dependent; 1 is the original, against which every drop is
    measured.
    """
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0, 1, 2)
    """One probe each; intervals need two or more."""
    ranking: RankingSpec = RankingSpec()
    layout: LayoutSpec = LayoutSpec()
    precision: PrecisionChoice = "float32"
    """The precision in which encoders compute. bfloat16 needs a GPU, or a CPU that has it; token
    probes then multiply their features in it too. ``auto`` takes bfloat16 where the scores of all
    the study's encoders are known to hold in it, on such a CPU of this machine, and float32
    otherwise; the stored specification says which. Sums, softmax, norms and the optimiser stay
    float32.
    """
    features: FeaturesSpec = FeaturesSpec()
    reference: FilePath | None = None
    """A CSV of the paper's own numbers, which the report compares with ours."""
    execution: ExecutionSpec = ExecutionSpec()

    @field_validator("name")
    @classmethod
    def _no_file(cls, name: str) -> str:
        if name.lower().endswith(".yaml"):
            raise ValueError(
                "a store keeps the study of that name without .yaml under it: leave .yaml out"
            )
        return name

    def draws(self, order: Order) -> dict[tuple[int, ...], tuple[int, ...]]:
        """The seeds that share a head order, and what theirs is drawn from:
        ``papa.spec.orders.drawn_from``.
        """
        return drawn_from(
            order, self.ranking.seeds[0], self.seeds, {one.name: one.values for one in self.scores}
        )

    @model_validator(mode="after")
    def _every_score_is_there(self) -> StudySpec:
        names = [one.name for one in self.scores]
        missing = [
            name for name in map(scores_in, self.orders) if name is not None and name not in names
        ]
        if missing:
            raise ValueError(
                f"orders: there are no scores {shown(missing[0])}: name a file, such as "
                "scores:heads.tsv"
            )
        return self

    @model_validator(mode="after")
    def _decoders_have_no_probe(self) -> StudySpec:
        decoded = [task.name for task in self.tasks if task.kind == "causal"]
        if decoded and any(one.kind == "next" for one in self.constants):
            raise ValueError(
                f"constants: next ones look ahead, and task {decoded[0]} is a decoder's: take "
                "previous"
            )
        outputs = [one.kind for one in self.constants if one.kind in OUTPUTS]
        if decoded and outputs:
            raise ValueError(
                f"constants: {outputs[0]} is an encoder's, and task {decoded[0]} is a decoder's: "
                "hold its outputs constant with papa.ablated, by mean or resample"
            )
        scored = next((one for one in map(scored_by, self.orders) if one in HEAD_SCORES), None)
        if decoded and scored:
            raise ValueError(
                f"orders: {scored} is not computed of decoders, and task {decoded[0]} is one's: "
                "take lambda, first_to_last or random, or give scores:FILE"
            )
        return self

    @model_validator(mode="after")
    def _parameters_fit_the_slots(self) -> StudySpec:
        for task, one in product(self.tasks, self.constants):
            most = {"window": task.slots - 1, "rank": task.slots, "largest": task.slots**2}
            for name, value in one.parameters.items():
                if value > most[name]:
                    raise ValueError(
                        f"constants: {name} of kind '{one.kind}' is {value}, and task {task.name} "
                        f"has {task.slots} slots: take {most[name]} or less"
                    )
        return self

    @model_validator(mode="after")
    def _own_heads_are_not_trained(self) -> StudySpec:
        own = [task.name for task in self.tasks if task.head == "own"]
        trained = [one.kind for one in self.constants if one.is_trained]
        if own and trained:
            raise ValueError(
                f"constants: {trained[0]} ones are trained with a probe, and task {own[0]} has "
                "head: own"
            )
        methods = [HEAD_SCORES.get(scored_by(order) or "") for order in self.orders]
        labelled = next((one.label for one in methods if one and not one.label_free), None)
        if own and labelled:
            raise ValueError(
                f"orders: {labelled} is computed with a probe, and task {own[0]} has head: own: "
                "take lambda or a label-free order such as distance"
            )
        if self.layout.segment_ids == "stay" and any(
            task.kind == "pair" for task in self.tasks if task.head == "own"
        ):
            raise ValueError(
                "layout: with segment_ids: stay a pair is not what the model's own head is given"
            )
        return self

    _listed_once = field_validator(
        "encoders", "tasks", "constants", "orders", "scores", "fractions", "seeds"
    )(_no_repeats)
