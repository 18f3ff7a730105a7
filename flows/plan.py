"""What a study would run, what is cached, and about what it costs; nothing is computed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table

from flows.costs import expected_rates, feature_bytes, gpu, measured_rates, one_core, seconds_of
from flows.graph import Graph, Node
from flows.progress import duration
from papa.storage.artifacts import ArtifactReference
from tasks.store import Store

if TYPE_CHECKING:
    from flows.check import Checked

State = Literal["cached", "to run"]


@dataclass(frozen=True)
class PlannedStep:
    """One step of a plan.

    Attributes:
        stage, name: which.
        state: whether its artifact is there.
        seconds: about how long one worker needs; 0 where it is there.
    """

    stage: str
    name: str
    state: State
    seconds: float


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
    core = one_core()
    device = gpu(study.precision, teraflops) if gpus else core
    measured = {} if gpus else measured_rates(store)
    steps = plan_study(graph, store, {**expected_rates(device.flops, core.flops), **measured})
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


def plan_study(graph: Graph, store: Store, rates: Mapping[str, float]) -> list[PlannedStep]:
    """Walk the graph as the flow would, reading the store alone.

    A step is cached if everything it builds on is and its own artifact is complete. Where something it builds
    on has to run, its key is not known yet and it counts as to run.
    """
    references: dict[Node, ArtifactReference] = {}
    keys: set[str] = set()
    plan = []
    for node in graph.nodes:
        state: State = "to run"
        if all(need in references for need in node.needs):
            step = node.step([references[need] for need in node.needs])
            if step.key in keys:
                # Two nodes with the same key are one step: it runs once.
                if step.is_complete(store):
                    references[node] = store.reference(step.stage, step.key)
                continue
            keys.add(step.key)
            if step.is_complete(store):
                state = "cached"
                references[node] = store.reference(step.stage, step.key)
        seconds = 0.0 if state == "cached" else seconds_of(node.stage, node.flops, rates)
        plan.append(PlannedStep(node.stage, node.name, state, seconds))
    return plan


def longest_chain(graph: Graph, plan: Sequence[PlannedStep], workers: int) -> float:
    """Seconds of the longest chain of steps that wait for each other; an average is shared by all workers."""
    own = {step.name: step.seconds / (workers if step.stage == "average" else 1) for step in plan}
    until: dict[Node, float] = {}
    for node in graph.nodes:
        until[node] = own.get(node.name, 0.0) + max((until[need] for need in node.needs), default=0.0)
    return max(until.values(), default=0.0)


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
