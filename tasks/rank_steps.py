"""Which steps compute the head scores that an order follows.

Scores are computed with C of the task's own text, whatever the cells use, so that all substitutes
are compared on the same heads.
"""

import sys
from dataclasses import replace

from papa.ranking.head_scores import partition_of
from papa.ranking.orders import SCORING_METHODS, has_joint_effects
from papa.spec import TaskSpec
from papa.spec.study import CONTROL_SEEDS
from papa.tasks.cell import ConstantHeads
from papa.tasks.head_scores import Rankings, StepsBySeed
from papa.tasks.joint_effects import joint_effects
from papa.tasks.pair import (
    Pair,
    average_step,
    equivalent_metric,
    label_column,
    native_task,
    reduced,
    task_of_only,
)
from papa.tasks.rank import score_heads, train_frozen_probe, train_lambda
from papa.tasks.step import Step
from papa.tasks.sweep import SWEPT_METHOD, sweep_heads


def ranking_steps(pair: Pair, method: str) -> StepsBySeed:
    """Return the steps that score heads by a method."""
    study = pair.study
    if method == "lambda":
        return {seed: _lambda_step(pair, seed) for seed in study.ranking_seeds}
    # A pass over all rows draws nothing: one serves all seeds.
    one_for_all_seeds = SCORING_METHODS[method].is_row_mean and study.ranking.rows is None
    seeds = study.ranking_seeds[:1] if one_for_all_seeds else study.ranking_seeds
    if method == SWEPT_METHOD and pair.task.head == "native":
        return {seed: _sweep_step(pair, seed) for seed in seeds}
    return {seed: _scores_step(pair, method, seed, seeds, one_for_all_seeds) for seed in seeds}


def _lambda_step(pair: Pair, seed: int) -> Step:
    study = pair.study
    return train_lambda.step(
        pair.name_of("train_lambda", seed, study.ranking_seeds),
        encoder=pair.encoder,
        text=pair.text,
        average=pair.average,
        task=_task_of_loss(pair.task, probe=study.ranking.training(pair.task.probe)),
        ranking=reduced(study.ranking, "rows"),
        seed=seed,
        rows_divided_by=_seeds_of_native(pair),
        unit=study.unit,
    )


def _sweep_step(pair: Pair, seed: int) -> Step:
    study = pair.study
    return sweep_heads.step(
        pair.name_of("sweep_heads", seed, study.ranking_seeds),
        encoder=pair.encoder,
        text=pair.text,
        average=pair.average,
        task=_task_of_loss(pair.task, probe=pair.task.probe),
        ranking=reduced(study.ranking, "rows", *SCORING_METHODS[SWEPT_METHOD].ranking_settings),
        seed=seed,
        unit=study.unit,
    )


def _scores_step(
    pair: Pair, name: str, seed: int, seeds: tuple[int, ...], one_for_all_seeds: bool
) -> Step:
    """Return the step that scores heads; methods that are means over rows of attention share it."""
    study = pair.study
    method = SCORING_METHODS[name]
    streamed = tuple(
        sorted(
            key for key, entry in SCORING_METHODS.items() if entry.is_row_mean and entry.in_studies
        )
    )
    frozen_probe: Step | None = None
    average = pair.average
    task: TaskSpec | None
    if not method.label_free:
        task = _task_of_loss(pair.task, probe=pair.task.probe)
        if pair.task.head == "probe" and method.uses_frozen_probe:
            frozen_probe = train_frozen_probe.step(
                pair.name_of("train_frozen_probe", seed, study.ranking_seeds),
                encoder=pair.encoder,
                text=pair.text,
                task=task,
                seed=seed,
            )
    elif method.is_row_mean and pair.task.head == "native":
        task = native_task(pair.task)
    else:
        # A plain encoder in the layout; it alone keeps hidden states.
        task = task_of_only(pair.task, *(["probe"] if method.is_trained else []))
        average = average_step(pair, pair.task, plain=True)
    methods = "all in one pass" if method.is_row_mean else name
    return score_heads.step(
        pair.name_of(f"score_heads · {methods}", seed, seeds),
        encoder=pair.encoder,
        text=pair.text,
        average=average,
        task=task,
        ranking=reduced(study.ranking, "rows", *method.ranking_settings),
        methods=streamed if method.is_row_mean else (name,),
        seed=None if one_for_all_seeds else seed,
        frozen_probe=frozen_probe,
        rows_divided_by=() if method.label_free else _seeds_of_native(pair),
        unit=study.unit,
    )


def _seeds_of_native(pair: Pair) -> tuple[int, ...]:
    """Return the ranking seeds, where they divide the rows of a native head among them."""
    divides = pair.task.head == "native" and pair.study.ranking.rows is None
    return pair.study.ranking_seeds if divides else ()


def control_steps(pair: Pair, lambda_steps: StepsBySeed) -> StepsBySeed:
    """Return the steps that train λ on shuffled labels, the control; {} where it would say nothing.

    It compares seeds that are trained on different rows, of which there must be enough.
    """
    study = pair.study
    task = pair.task
    rows = task.train_rows or sys.maxsize
    partitions = {partition_of(rows, study.ranking.rows, seed) for seed in study.ranking_seeds}
    # Seeds have different rows where all take disjoint parts of one shuffle of the rows.
    share_rows = len(partitions) > 1 or None in partitions
    has_labels = task.columns.label is not None or task.kind in ("mlm", "causal")
    if (
        not study.ranking.control
        or share_rows
        or len(study.ranking_seeds) < CONTROL_SEEDS
        or not has_labels
        or task.ranks_by_divergence
    ):
        return {}
    return {
        seed: replace(step.with_arguments(shuffled=True), name=f"{step.name} · shuffled labels")
        for seed, step in lambda_steps.items()
    }


def joint_effects_step(pair: Pair, rankings: Rankings) -> Step | None:
    """Return the step that compares what the first heads of the order by effect cost together with
    what each costs; None of a probe, whose loss has no value for each text, without the order, and
    where ``has_joint_effects`` says so.
    """
    study = pair.study
    is_compared = SWEPT_METHOD in study.orders and has_joint_effects(study.keep, pair.unit_count)
    if pair.task.head != "native" or not is_compared or SWEPT_METHOD not in rankings:
        return None
    return joint_effects.step(
        f"joint_effects · {pair.title}",
        encoder=pair.encoder,
        text=pair.text,
        average=pair.average,
        task=_task_of_loss(pair.task, probe=pair.task.probe),
        ranking=reduced(study.ranking, "rows"),
        heads=ConstantHeads(
            size=(pair.encoder.layers, pair.encoder.heads),
            order=SWEPT_METHOD,
            score_steps=rankings[SWEPT_METHOD],
        ),
        keep=study.keep,
        unit=study.unit,
    )


def _task_of_loss(task: TaskSpec, **values: object) -> TaskSpec:
    """Return what of a task decides a loss."""
    metric = equivalent_metric(task, "of_embeddings", "ranks_by_divergence", "regression")
    return task_of_only(task, "head", "labels", columns=label_column(task), metric=metric, **values)
