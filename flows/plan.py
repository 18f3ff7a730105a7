"""What a study would run, what is cached, and about what it costs; nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table

from flows.costs import measured_rates, seconds_of
from flows.graph import Graph, Node
from flows.progress import duration
from papa.artifacts import ArtifactReference
from tasks.store import Store

State = Literal["cached", "to run"]


@dataclass(frozen=True)
class Planned:
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


def plan_study(graph: Graph, store: Store) -> list[Planned]:
    """Walk the graph as the flow would, asking the store alone.

    A step is cached if everything it builds on is and its own artifact is complete. Where something it builds
    on has to run, its key is not known yet and it counts as to run.
    """
    rates = measured_rates(store)
    found: dict[Node, ArtifactReference] = {}
    seen: set[str] = set()
    plan = []
    for node in graph.nodes:
        state: State = "to run"
        if all(need in found for need in node.needs):
            step = node.step([found[need] for need in node.needs])
            if step.key in seen:
                # Another node stands for the same step: it runs once.
                if step.is_complete(store):
                    found[node] = store.reference(step.stage, step.key)
                continue
            seen.add(step.key)
            if step.is_complete(store):
                state = "cached"
                found[node] = store.reference(step.stage, step.key)
        seconds = 0.0 if state == "cached" else seconds_of(node.stage, node.flops, rates)
        plan.append(Planned(node.stage, node.name, state, seconds))
    return plan


def total_seconds(plan: Sequence[Planned], workers: int) -> float:
    """About how long the whole plan takes on so many workers, if they are never idle."""
    return sum(step.seconds for step in plan) / workers


def plan_table(plan: Sequence[Planned], *, measured: bool) -> Table:
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
    table.caption = "time on one worker, " + ("from this store's own rates" if measured else "a rough estimate")
    return table
