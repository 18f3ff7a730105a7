"""What a study would run, what is cached, and about what it costs; nothing is computed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from flows.check import Checked
from flows.costs import LOADING, SUBMITTING, Device, expected_rates, feature_bytes, gpu, measured_rates, one_core
from flows.graph import PlannedStep, plan_study
from flows.makespan import Makespan, makespan
from flows.progress import duration
from tasks.store import Store

_CLOSE = 1.1
"""A study that takes so many times its longest chain at most gains nothing by more workers."""


@dataclass(frozen=True)
class Cluster:
    """Where a study would run.

    Attributes:
        nodes: machines, each like this one or with GPUs.
        workers: of a node on CPUs; None takes the study's, else one for each core of this machine.
        gpus: of a node; None plans for CPUs.
        teraflops: the rate of one GPU in a matrix product; None measures or assumes it.
    """

    nodes: int = 1
    workers: int | None = None
    gpus: int | None = None
    teraflops: float | None = None


def show_plan(checked: Checked, store: Store, console: Console, cluster: Cluster) -> None:
    """Print the plan of a study.

    Args:
        checked: the study.
        store: its artifacts, and the rates at which they were computed.
        console: where to.
        cluster: where the study would run.
    """
    for note in checked.unchecked:
        _say(console, f"not checked: {note}")
    study, graph = checked.inputs.study, checked.graph
    device, expected = _expected(checked, cluster) if checked.to_run else (None, {})
    measured = {} if cluster.teraflops else measured_rates(store, "cuda" if cluster.gpus else "cpu")
    steps = plan_study(graph, store, {**expected, **measured})
    unit = "GPU" if cluster.gpus else "worker"
    many = cluster.gpus or cluster.nodes > 1
    console.print(stage_table(steps, unit) if many else plan_table(steps, measured=bool(measured)))
    missing = sum(step.state == "to run" for step in steps)
    cached = f"{len(steps) - missing} of {len(steps)} steps are cached; "
    if not missing:
        _say(console, f"{cached}nothing would run.")
        return
    of_node = cluster.gpus or cluster.workers or study.execution.workers or os.cpu_count() or 1
    count = cluster.nodes * of_node
    seconds = {step.name: step.seconds for step in steps}
    alone = ("rank",) if cluster.gpus else ()
    found = makespan(graph, seconds, count, alone=alone, submitting=SUBMITTING, loading=LOADING)
    where = f"{_of(count, unit)} of {cluster.nodes} nodes" if cluster.nodes > 1 else _of(count, unit)
    _say(console, f"{cached}{missing} would run, about {duration(found.seconds)} on {where}.")
    if many:
        source = f"device: {device.name}" if device and not measured else "the rates of this store's own steps"
        _say(console, f"In all {duration(sum(seconds.values()))} of {unit} time ({source}); {_bound(found)}")
    if cluster.gpus:
        _say(console, _features(checked))


def _expected(checked: Checked, cluster: Cluster) -> tuple[Device, dict[str, float]]:
    """What computes, and its rates, where the store has none."""
    width = max(encoder.width for encoder in checked.inputs.encoders)
    core = one_core(width)
    device = gpu(checked.inputs.encoders[0].precision, cluster.teraflops, width) if cluster.gpus else core
    return device, expected_rates(device.flops, core.flops)


def _bound(found: Makespan) -> str:
    """What keeps the study from being faster."""
    if found.seconds <= _CLOSE * found.chain:
        chain = duration(found.chain)
        return f"steps that wait for each other take {chain} of it however many there are: more would not help."
    return f"they would be busy for {found.busy:.0%} of the time."


def _features(checked: Checked) -> str:
    """What the largest cell's features take, and whether they are stored."""
    inputs, study = checked.inputs, checked.inputs.study
    largest = max(
        feature_bytes(encoder, inputs.size(task), study.features) for encoder in inputs.encoders for task in study.tasks
    )
    budget = study.execution.features_budget_gb
    beyond = f"beyond the budget of {budget:g} GB one pass an epoch replaces them"
    stored = "stored" if largest <= budget * 1e9 else beyond
    return f"The largest cell's features take {largest / 1e9:.3g} GB of disk: {stored}."


def _of(count: int, unit: str) -> str:
    return f"{count} {unit}{'s' if count > 1 else ''}"


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, soft_wrap=True, markup=False)


def stage_table(plan: Sequence[PlannedStep], unit: str) -> Table:
    """What each stage takes in all, for plans on many workers.

    Args:
        plan: the steps.
        unit: what computes, such as "GPU".
    """
    table = Table("Stage", "To run", "Cached", f"{unit} time")
    for column in table.columns[1:]:
        column.justify = "right"
    for stage in dict.fromkeys(step.stage for step in plan):
        steps = [step for step in plan if step.stage == stage]
        missing = [step for step in steps if step.state == "to run"]
        seconds = sum(step.seconds for step in missing)
        table.add_row(stage, str(len(missing)), str(len(steps) - len(missing)), duration(seconds) if seconds else "")
    return table


def plan_table(plan: Sequence[PlannedStep], *, measured: bool) -> Table:
    """The plan for the terminal."""
    table = Table(title=None)
    table.add_column("Stage")
    table.add_column("Step")
    table.add_column("State")
    table.add_column("About", justify="right")
    previous = None
    for step in plan:
        if previous not in (None, step.stage):
            table.add_section()
        previous = step.stage
        what = step.name.removeprefix(f"{step.stage} · ")
        cost = duration(step.seconds) if step.seconds >= 0.1 else ""
        table.add_row(step.stage, what, f"[green]{step.state}[/]" if step.state == "cached" else step.state, cost)
    table.caption = "time on one worker, " + (
        "from this store's own rates" if measured else "from the rate of a matrix product"
    )
    return table
