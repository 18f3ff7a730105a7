"""A study's specification, of which ``execution`` alone changes no result and enters no key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, FilePath, field_validator, model_validator

from papa.spec.constants import OF_DECODERS, OUTPUTS, REUSED, ConstantsSpec
from papa.spec.data import CodeSpec, EncoderSpec, HeadScores
from papa.spec.orders import HEAD_SCORES, Order, order_named, scored_by, scores_in
from papa.spec.task import TaskSpec
from papa.spec.values import (
    Amount,
    Fraction,
    Frozen,
    Name,
    Positive,
    Precision,
    PrecisionChoice,
    Rate,
    Seed,
    no_repeats,
)

CONTROLLED = 5
"""Ranking seeds from which on λ of shuffled labels can tell anything at 5 %: 32 arrangements."""
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
    until_stable: bool = False
    """Stop once λ has moved from .5 and an epoch left the constant heads of every fraction."""
    learning_rate: Rate | None = None
    """For θ and the probe; None takes the task's."""
    rows: Positive | None = None
    """Heads are scored on a sample of this many training rows for each seed. Seeds such as 0, 1, 2
    have no row in common where the split has enough; None takes all for every seed."""
    seeds: Seeds = (0, 1, 2)
    """λ is trained once with each, and heads become constant by its mean. Random head orders are
    drawn from the first."""
    evaluations: Positive = 2_000
    """How often shapley and greedy may compute the loss of a set of heads, for each seed."""
    control: bool = True
    """Where five seeds or more have ``rows`` of their own, λ is trained on shuffled labels as well,
    and the report says whether the head order owes anything to the labels."""

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
    """Tokens in a micro-batch, padding included; None, and passes with ``probe.encoder_dropout``,
    take the fastest for the device."""
    shard_rows: Positive = 1024
    """Rows in a shard of tokenised text: what the loss of a worker repeats."""
    features_budget_gb: Amount = 20.0
    """Disk for one cell's features; beyond it the encoder runs once per epoch for all seeds."""


class StudySpec(Frozen):
    """A study: encoders × tasks × constants × head orders × fractions × seeds."""

    name: Name
    """The name of its results; letters, digits, dots, dashes and underscores."""
    encoders: Annotated[tuple[EncoderSpec, ...], Field(min_length=1)]
    """Hub names such as google-bert/bert-base-uncased, folders, or the embedded one."""
    tasks: Annotated[tuple[TaskSpec, ...], Field(min_length=1)]
    """What the encoders are measured on: known tasks, changed key by key, or your own."""
    constants: Annotated[tuple[ConstantsSpec, ...], Field(min_length=1)] = (
        ConstantsSpec(kind="average"),
    )
    """What replaces attention: a ladder of kinds, from nothing to trained matrices."""
    orders: Annotated[tuple[Order, ...], Field(min_length=1)] = ("lambda",)
    """In which order heads become constant: lambda, lambda_reversed, first_to_last, last_to_first,
    random; the smallest score first, of gradient, shapley, greedy, gates, effect, label-free
    confidence, variance, distance, self_lambda, or a file, 'scores:FILE' (``papa.load_scores``);
    or code of your own, module:name. Each also from its end: reversed:distance."""
    scores: tuple[HeadScores, ...] = ()
    """Scores of heads that orders name; those of files and of code are added by themselves."""
    code: tuple[CodeSpec, ...] = ()
    """The files of code of your own; added by themselves from --code."""
    fractions: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (1.0, 0.5, 0.125, 0.0625, 0.0)
    """Shares of heads that stay input-dependent; drops are measured against 1, the original."""
    seeds: Seeds = (0, 1, 2)
    """One probe each; intervals need two or more."""
    ranking: RankingSpec = RankingSpec()
    layout: LayoutSpec = LayoutSpec()
    precision: PrecisionChoice = "float32"
    """The precision in which encoders compute. bfloat16 needs a GPU, or a CPU that has it; sums,
    softmax, norms and the optimiser stay float32. ``auto`` takes bfloat16 where the scores of all
    the study's encoders are known to hold in it, on such a CPU, and float32 otherwise."""
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
        if name.lower().endswith((".yaml", ".failed", ".jsonl")):
            raise ValueError("a store keeps files that end so: leave .yaml, .failed or .jsonl out")
        return name

    @model_validator(mode="after")
    def _parts_fit_together(self) -> StudySpec:
        for reason in _misfits(self):
            raise ValueError(reason)
        return self

    def draws(self, order: Order) -> dict[tuple[int, ...], tuple[int, ...]]:
        """The seeds of the study that share a head order, and what ``head_order`` draws theirs
        from: of one by scores the places of all heads, the smallest first, ties by (layer, head).
        """
        if (name := scores_in(order)) is not None:
            (values,) = (scores.values for scores in self.scores if scores.name == name)
            return {self.seeds: tuple(np.argsort(np.ravel(values), kind="stable").tolist())}
        if order_named(order).differs_by_seed:
            return {(seed,): (self.ranking.seeds[0], seed) for seed in self.seeds}
        return {self.seeds: ()}


def _misfits(study: StudySpec) -> Iterator[str]:
    """Why constants cannot be measured, and orders not be had, on a task."""
    for task, constants in product(study.tasks, study.constants):
        kind, where, name = constants.kind, f"constants: {constants.label}", f"task {task.name}"
        if task.kind == "causal" and kind in (*OUTPUTS, "mean_qk", "next"):
            yield f"{where} is of encoders, and {name} is a decoder's: take relative or previous"
        longer = (task.validation_slots or 0) > task.slots
        if longer and kind not in ("relative", REUSED, *OF_DECODERS):
            yield (
                f"{where} is read by slot, and {name} has {task.slots} slots and validation_slots "
                f"{task.validation_slots}: take relative or streaming, or as many slots"
            )
        if constants.is_trained and (task.own_probe or task.head == "own"):
            other = "own_probe" if task.own_probe else "head: own"
            yield f"{where} is trained with PAPA's own probe, and {name} has {other}"
        most = {"window": task.slots - 1, "rank": task.slots, "largest": task.slots**2}
        for key, value in constants.parameters.items():
            if value > most.get(key, value):
                yield (
                    f"constants: {key} of kind '{kind}' is {value}, and {name} has {task.slots} "
                    f"slots: take {most[key]} or less"
                )
    for task, method in product(study.tasks, map(scored_by, study.orders)):
        if task.kind == "causal" and method in HEAD_SCORES:
            yield (
                f"orders: {method} is not computed of decoders, and task {task.name} is one's: "
                "take lambda, first_to_last or random, or give scores:FILE"
            )
        reads = HEAD_SCORES[method].own_head if method in HEAD_SCORES else "all"
        unread = reads == "none" or (reads == "with a loss" and task.with_itself)
        if task.head == "own" and unread:
            yield (
                f"orders: {method} scores no heads for task {task.name}, which has head: own: take "
                "effect, or a label-free one such as distance"
            )
    for task in study.tasks:
        if study.layout.segment_ids == "stay" and (task.kind, task.head) == ("pair", "own"):
            yield "layout: a model's own head is given pairs with segment_ids: follow"
