"""The study's specification: YAML into frozen models, resolved once, at the top.

What changes results (encoders, tasks, constants, orders, fractions, seeds, ranking, layout,
features) is kept apart from what only changes speed (``execution``), which never enters a cache
key.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, FilePath, field_validator, model_validator

from papa.errors import shown
from papa.spec.constants import ConstantsSpec
from papa.spec.data import CodeSpec, EncoderSpec, HeadScores
from papa.spec.kinds import OF_DECODERS, most_of
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import module_of, order_named, scored_by, scores_in
from papa.spec.task import TaskSpec
from papa.spec.values import (
    OUTPUTS,
    REUSED,
    Amount,
    Fraction,
    Frozen,
    Name,
    Order,
    Positive,
    Precision,
    PrecisionChoice,
    Rate,
    Seed,
    no_repeats,
)

CONTROLLED = 5
"""Ranking seeds from which on λ of shuffled labels can tell anything at 5 %: where each exchanges
both or not, they have 32 arrangements.
"""
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(no_repeats)]


class LayoutSpec(Frozen):
    """Where the paper and its authors' code differ on the layout (docs/fidelity.md)."""

    one_text_truncation: Literal["full", "half"] = "full"
    """full: up to S-2 text tokens (paper); half: S/2-1 (authors' code)."""
    segment_ids: Literal["follow", "stay"] = "follow"
    """follow: segment ids move with their tokens; stay: they keep the tokenizer's positions."""


class RankingSpec(Frozen):
    """How λ is trained (paper, Section 3.2): together with the probe, on the task's
    training text.
    """

    epochs: Positive | None = None
    """None takes the task's ``probe.epochs``, as the authors did."""
    until_stable: bool = False
    """Stop early, once λ has moved from .5 and an epoch left the constant heads of every fraction
    as they were."""
    learning_rate: Rate | None = None
    """For θ and the probe; None takes the task's."""
    rows: Positive | None = None
    """Heads are scored on a sample of this many training rows for each seed. Seeds that follow each
    other, such as 0, 1, 2, have no row in common where the split has that many times as many; None
    takes all for every seed."""
    seeds: Seeds = (0, 1, 2)
    """λ is trained once with each, and heads become constant by its mean; of one seed nobody knows
    how certain it is. Random head orders are drawn from the first."""
    evaluations: Positive = 2_000
    """How often the orders shapley and greedy may compute the loss of a set of heads, for each
    seed."""
    control: bool = True
    """Where five seeds or more have rows of their own (``rows``), λ is trained on shuffled labels
    as well, which takes as long again, and the report says whether the head order owes anything to
    the labels."""

    @model_validator(mode="before")
    @classmethod
    def _one_seed(cls, values: Any) -> Any:
        """Studies of older versions have one ``seed``."""
        if isinstance(values, dict) and "seed" in values and "seeds" not in values:
            values = {**values, "seeds": [values["seed"]]}
            del values["seed"]
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
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes the GPU where there is one."""
    batch_tokens: Positive | None = None
    """Tokens in a micro-batch, padding included; None takes the fastest for the device, as passes
    with ``probe.encoder_dropout`` always do."""
    shard_rows: Positive = 1024
    """Rows in a shard of tokenised text: what the loss of a worker repeats."""
    features_budget_gb: Amount = 20.0
    """Disk for one cell's features; beyond it the encoder runs once per epoch for all seeds."""

    @model_validator(mode="before")
    @classmethod
    def _no_cluster(cls, values: Any) -> Any:
        """Earlier versions wrote the key without a value."""
        if isinstance(values, dict) and values.get("ray_address", 0) is None:
            return {name: value for name, value in values.items() if name != "ray_address"}
        if isinstance(values, dict) and "ray_address" in values:
            raise ValueError(
                "ray_address is no key of a study file, as this process loads whatever a cluster "
                "answers: give --ray-address, or set RAY_ADDRESS"
            )
        return values


class StudySpec(Frozen):
    """A study: encoders × tasks × constants × head orders × fractions × seeds."""

    name: Name
    """The name of its results; letters, digits, dots, dashes and underscores."""
    encoders: Annotated[tuple[EncoderSpec, ...], Field(min_length=1)]
    """Frozen pretrained encoders: hub names such as google-bert/bert-base-uncased, folders, or the
    embedded one."""
    tasks: Annotated[tuple[TaskSpec, ...], Field(min_length=1)]
    """What the encoders are measured on: names of known tasks, changed key by key where need be, or
    your own."""
    constants: Annotated[tuple[ConstantsSpec, ...], Field(min_length=1)] = (
        ConstantsSpec(kind="average"),
    )
    """What replaces attention: a ladder of kinds, from nothing to trained matrices."""
    orders: Annotated[tuple[Order, ...], Field(min_length=1)] = ("lambda",)
    """In which order heads become constant: lambda, lambda_reversed, first_to_last, last_to_first
    or random; by a method that scores heads, the smallest score first: gradient, shapley, greedy,
    gates, effect, and label-free confidence, variance, distance (to constant) or self_lambda; or by
    somebody's scores, likewise: 'scores:FILE' (``papa.load_scores`` says what it may hold); or by
    code of your own: module:name (docs/how-to/own-data.md). Each also from its end:
    reversed:distance."""
    scores: tuple[HeadScores, ...] = ()
    """Scores of heads that orders name; those of scores:FILE and of module:name are added by
    themselves."""
    code: tuple[CodeSpec, ...] = ()
    """The files of code of your own; added by themselves from --code."""
    fractions: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (1.0, 0.5, 0.125, 0.0625, 0.0)
    """Shares of heads that stay input-dependent; 1 is the original, against which every drop is
    measured."""
    seeds: Seeds = (0, 1, 2)
    """One probe each; intervals need two or more."""
    ranking: RankingSpec = RankingSpec()
    layout: LayoutSpec = LayoutSpec()
    precision: PrecisionChoice = "float32"
    """The precision in which encoders compute. bfloat16 needs a GPU, or a CPU that has it; token
    probes then multiply their features in it too. ``auto`` takes bfloat16 where the scores of all
    the study's encoders are known to hold in it, on such a CPU of this machine, and float32
    otherwise; the stored specification says which. Sums, softmax, norms and the optimiser stay
    float32."""
    features: FeaturesSpec = FeaturesSpec()
    reference: FilePath | None = None
    """A CSV of the paper's own numbers, which the report compares with ours."""
    execution: ExecutionSpec = ExecutionSpec()

    _listed_once = field_validator(
        "encoders", "tasks", "constants", "orders", "scores", "code", "fractions"
    )(no_repeats)

    @field_validator("name")
    @classmethod
    def _no_file(cls, name: str) -> str:
        for ending in (".yaml", ".failed", ".jsonl"):
            if name.lower().endswith(ending):
                raise ValueError(f"a store keeps files that end so: leave {ending} out")
        return name

    @model_validator(mode="after")
    def _parts_fit_together(self) -> StudySpec:
        for order in self.orders:
            name = scores_in(order)
            if name is None or module_of(name) or name in [one.name for one in self.scores]:
                continue
            raise ValueError(f"orders: there are no scores {shown(name)}: name a file of them")
        for task in self.tasks:
            if self.layout.segment_ids == "stay" and (task.kind, task.head) == ("pair", "own"):
                raise ValueError(
                    "layout: with segment_ids: stay a pair is not what the model's own head is "
                    "given"
                )
            for constants in self.constants:
                if reason := _against_constants(task, constants):
                    raise ValueError(f"constants: {reason}")
            for order in self.orders:
                if reason := _against_order(task, scored_by(order)):
                    raise ValueError(f"orders: {reason}")
        return self

    def draws(self, order: Order) -> dict[tuple[int, ...], tuple[int, ...]]:
        """The seeds of the study that share a head order, and the numbers that ``head_order`` draws
        theirs from: of one that differs by seed the first of ``ranking.seeds`` and that seed; of
        one by scores the places of all heads, the smallest score first, ties by (layer, head).
        """
        if (name := scores_in(order)) is not None:
            (values,) = (scores.values for scores in self.scores if scores.name == name)
            return {self.seeds: tuple(np.argsort(np.ravel(values), kind="stable").tolist())}
        if order_named(order).differs_by_seed:
            return {(seed,): (self.ranking.seeds[0], seed) for seed in self.seeds}
        return {self.seeds: ()}


def _against_constants(task: TaskSpec, constants: ConstantsSpec) -> str | None:
    """Why constants cannot be measured on a task, if so."""
    kind, name, causal = constants.kind, task.name, task.kind == "causal"
    if causal and kind == "next":
        return f"next ones look ahead, and task {name} is a decoder's: take previous"
    if causal and kind in (*OUTPUTS, "mean_qk"):
        return (
            f"{kind} is an encoder's, and task {name} is a decoder's: take relative, or use "
            "papa.ablated"
        )
    if task.most_slots > task.slots and kind not in ("relative", REUSED, *OF_DECODERS):
        return (
            f"{constants.label} is read by slot, and task {name} has {task.slots} slots and "
            f"validation_slots {task.validation_slots}: take relative or streaming, or as many "
            "slots"
        )
    if constants.is_trained and (task.own_probe or task.head == "own"):
        other = "own_probe" if task.own_probe else "head: own"
        return f"{kind} ones are trained with PAPA's own probe, and task {name} has {other}"
    most = most_of(task.slots)
    for parameter, value in constants.parameters.items():
        if value > most.get(parameter, value):
            return (
                f"{parameter} of kind '{kind}' is {value}, and task {name} has {task.slots} slots: "
                f"take {most[parameter]} or less"
            )
    return None


def _against_order(task: TaskSpec, method: str | None) -> str | None:
    """Why a method scores no heads for a task, if so."""
    if method not in HEAD_SCORES:
        return None
    asked, instead = HEAD_SCORES[method], "take effect, or a label-free one such as distance"
    if task.kind == "causal":
        return (
            f"{method} is not computed of decoders, and task {task.name} is one's: take lambda, "
            "first_to_last or random, or give scores:FILE"
        )
    if task.head == "own" and asked.own_head == "none":
        return (
            f"{asked.label} are trained with a probe, and task {task.name} has head: own: {instead}"
        )
    if task.head == "own" and asked.own_head == "with a loss" and task.with_itself:
        return (
            f"{asked.label} is that of a loss, and task {task.name} compares the model with "
            f"itself, where every one is 0: {instead}"
        )
    return None
