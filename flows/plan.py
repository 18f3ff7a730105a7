"""What a study would run, what is cached, and about what it costs; nothing is computed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Column, Table

from flows.check import Checked
from flows.progress import duration
from flows.terminal import say
from papa.study.costs import (
    SUBMITTING,
    Device,
    expected_rates,
    feature_bytes,
    gpu,
    measured_rates,
    one_core,
    seconds_of,
)
from papa.study.step import Step
from papa.study.store import Store

_CLOSE = 1.1
"""A study that takes so many times its longest chain at most gains nothing by more workers."""
_SHARED = 0.82
"""The share of λ's training that several workers divide (docs/performance.md measures it)."""


@dataclass(frozen=True)
class PlannedStep:
    """One step of a plan, and about how long one worker needs: 0 where it is there."""

    step: Step
    cached: bool
    seconds: float


def planned_steps(
    steps: Sequence[Step], store: Store, rates: Mapping[str, float]
) -> list[PlannedStep]:
    """What of a study's steps is in a store, and about what the others cost at these rates."""
    cached = {step: step.is_complete(store) for step in steps}
    return [
        PlannedStep(step, there, 0.0 if there else seconds_of(step.stage, step.flops, rates))
        for step, there in cached.items()
    ]


@dataclass(frozen=True)
class Bound:
    """What keeps a study from ending sooner: seconds of one worker in all, those of the longest
    chain of steps that wait for each other on as many workers as can be of use, and the driver's.
    """

    work: float
    chain: float
    submitting: float

    def seconds(self, workers: int) -> float:
        """The least that so many workers need."""
        return max(self.work / workers, self.chain, self.submitting)


def bound(plan: Sequence[PlannedStep], alone: Collection[str] = ()) -> Bound:
    """The bound of a plan, whose steps come after those that they read; one worker computes those
    of stages ``alone``, whatever their parts.
    """
    until: dict[Step, float] = {}
    for planned in plan:
        step, shared = planned.step, 1.0 if planned.step.stage == "average" else _SHARED
        parts = 1 if step.stage in alone else step.parts
        own = planned.seconds * (1 - shared + shared / parts)
        until[step] = own + max((until[need] for need in step.needs), default=0.0)
    seconds = [planned.seconds for planned in plan]
    return Bound(
        sum(seconds),
        max(until.values(), default=0.0),
        SUBMITTING * sum(not planned.cached for planned in plan),
    )


def show_plan(
    checked: Checked,
    store: Store,
    console: Console,
    *,
    nodes: int,
    gpus: int | None,
) -> None:
    """Print the plan of a study, from the artifacts of a store and the rates at which they were
    computed, on ``nodes`` machines: each with the study's workers, else one for each core of this
    machine, or with so many GPUs, each of a rate that is measured or assumed.
    """
    for note in checked.unchecked:
        say(console, f"not checked: {note}")
    device, expected = _expected(checked, gpus) if checked.to_run else (None, {})
    measured = measured_rates(store, "cuda" if gpus else "cpu")
    steps = planned_steps(checked.steps.steps, store, {**expected, **measured})
    unit = "GPU" if gpus else "worker"
    many = gpus or nodes > 1
    console.print(_stage_table(steps, unit) if many else _plan_table(steps, bool(measured)))
    missing = sum(not planned.cached for planned in steps)
    cached = f"{len(steps) - missing} of {len(steps)} steps are cached; "
    if not missing:
        say(console, f"{cached}nothing would run.")
        return
    count = nodes * (gpus or checked.workers or os.cpu_count() or 1)
    found = bound(steps, ("rank", "scores") if gpus else ())
    where = f"{count} {unit}{'s' if count > 1 else ''}"
    where += f" of {nodes} nodes" if nodes > 1 else ""
    least = duration(found.seconds(count))
    say(console, f"{cached}{missing} would run, at least {least} on {where}.")
    if many:
        source = "the rates of this store's own steps"
        if device and not measured:
            source = f"device: {device.name}"
        work = f"In all {duration(found.work)} of {unit} time ({source})"
        say(console, f"{work}; {_limit(found, count)}")
    if gpus:
        say(console, _features(checked))


def _expected(checked: Checked, gpus: int | None) -> tuple[Device, dict[str, float]]:
    """What computes, and its rates, where the store has none."""
    width = max(encoder.width for encoder in checked.inputs.encoders)
    device = core = one_core(width)
    if gpus:
        device = gpu(checked.inputs.encoders[0].precision, width)
    return device, expected_rates(device.flops, core.flops)


def _limit(found: Bound, workers: int) -> str:
    """What keeps the study from being faster."""
    seconds = found.seconds(workers)
    if seconds <= _CLOSE * found.chain:
        chain = duration(found.chain)
        return (
            f"steps that wait for each other take {chain} of it however many there are: more would "
            "not help."
        )
    return f"they would be busy for {found.work / (workers * seconds):.0%} of the time at most."


def _features(checked: Checked) -> str:
    """What the largest cell's features take, and whether they are stored."""
    inputs, study = checked.inputs, checked.inputs.study
    largest = max(
        feature_bytes(encoder, inputs.sizes[task], study.features)
        for encoder in inputs.encoders
        for task in study.tasks
    )
    budget = study.execution.features_budget_gb
    beyond = f"beyond the budget of {budget:g} GB one pass an epoch replaces them"
    stored = "stored" if largest <= budget * 1e9 else beyond
    return f"The largest cell's features take {largest / 1e9:.3g} GB of disk: {stored}."


def _stage_table(plan: Sequence[PlannedStep], unit: str) -> Table:
    """What each stage takes in all, for plans on many workers or GPUs."""
    numbers = (Column(heading, justify="right") for heading in ("To run", "Cached", f"{unit} time"))
    table = Table("Stage", *numbers)
    for stage in dict.fromkeys(planned.step.stage for planned in plan):
        steps = [planned for planned in plan if planned.step.stage == stage]
        cached = sum(planned.cached for planned in steps)
        seconds = sum(planned.seconds for planned in steps)
        time = duration(seconds) if seconds else ""
        table.add_row(stage, str(len(steps) - cached), str(cached), time)
    return table


def _plan_table(plan: Sequence[PlannedStep], measured: bool) -> Table:
    """Each step of a plan."""
    rates = "this store's own rates" if measured else "the rate of a matrix product"
    caption = f"time on one worker, from {rates}"
    table = Table("Stage", "Step", "State", Column("About", justify="right"), caption=caption)
    for stage, steps in groupby(plan, lambda planned: planned.step.stage):
        table.add_section()
        for planned in steps:
            cost = duration(planned.seconds) if planned.seconds >= 0.1 else ""
            state = "[green]cached[/]" if planned.cached else "to run"
            table.add_row(stage, planned.step.name.removeprefix(f"{stage} · "), state, cost)
    return table
