"""What a study would run, what is cached, and about what it costs; nothing is computed."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from flows.check import Checked
from flows.costs import expected_rates, feature_bytes, gpu, measured_rates, one_core
from flows.graph import PlannedStep, longest_chain, plan_study
from flows.progress import duration
from tasks.store import Store


def show_plan(
    checked: Checked,
    store: Store,
    console: Console,
    *,
    workers: int | None = None,
    gpus: int | None = None,
    teraflops: float | None = None,
) -> None:
    """Print the plan of a study, for this machine or for ``gpus`` GPUs.

    Args:
        checked: the study.
        store: its artifacts, and the rates at which they were computed.
        console: where to.
        workers: on this machine; None takes the study's, else one for each core.
        gpus: None plans for this machine.
        teraflops: the rate of one GPU in a matrix product; None measures or assumes it.
    """
    for note in checked.unchecked:
        console.print(f"not checked: {note}", highlight=False, soft_wrap=True, markup=False)
    inputs, graph = checked.inputs, checked.graph
    study = inputs.study
    expected: dict[str, float] = {}
    if checked.to_run:
        core = one_core()
        device = gpu("float32" if study.precision == "auto" else study.precision, teraflops) if gpus else core
        expected = expected_rates(device.flops, core.flops)
    measured = {} if gpus else measured_rates(store)
    steps = plan_study(graph, store, {**expected, **measured})
    count = gpus or workers or study.execution.workers or os.cpu_count() or 1
    unit = "GPU" if gpus else "worker"
    console.print(stage_table(steps, unit) if gpus else plan_table(steps, measured=bool(measured)))
    missing = sum(step.state == "to run" for step in steps)
    cached = f"{len(steps) - missing} of {len(steps)} steps are cached; "
    if not missing:
        console.print(f"{cached}nothing would run.", highlight=False)
        return
    seconds = sum(step.seconds for step in steps)
    wall = max(seconds / count, longest_chain(graph, steps, count))
    on = f"{count} {unit}{'s' if count > 1 else ''}"
    console.print(f"{cached}{missing} would run, about {duration(wall)} on {on}.", highlight=False)
    if gpus:
        largest = max(
            feature_bytes(encoder, inputs.size(task), study.features)
            for encoder in inputs.encoders
            for task in study.tasks
        )
        budget = study.execution.features_budget_gb
        stored = (
            "stored"
            if largest <= budget * 1e9
            else f"beyond the budget of {budget:g} GB one pass an epoch replaces them"
        )
        console.print(
            f"In all {duration(seconds)} of GPU time; device: {device.name}.\n"
            f"The largest cell's features take {largest / 1e9:.3g} GB of disk: {stored}.",
            highlight=False,
            soft_wrap=True,
        )


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
