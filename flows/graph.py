"""What a study consists of: its steps, what each builds on, and the nodes that score each cell.

A node makes its step once the artifacts it needs are known, because keys are built on digests. The planner
and the flow walk the same graph: the one asks the store, the other runs what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from flows.costs import seconds_of
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from tasks.mlflow_parents import ParentRun
from tasks.step import Step
from tasks.store import Store


@dataclass(frozen=True, eq=False)
class Node:
    """One step to be, and the nodes it builds on.

    Attributes:
        stage: its stage.
        name: what people call it.
        flops: about how much work it is.
        needs: the nodes whose artifacts it builds on.
        make: its step, from name, flops and the references of ``needs``, in order.
        parts: how many workers can share it.
    """

    stage: str
    name: str
    flops: float
    needs: tuple[Node, ...]
    make: Callable[..., Step]
    parts: int = 1

    def step(self, references: Sequence[ArtifactReference]) -> Step:
        """The step, once the artifacts of ``needs`` are known."""
        return self.make(self.name, self.flops, *references)


@dataclass(frozen=True)
class Graph:
    """A study's nodes, each after those it needs, and its cells.

    Attributes:
        nodes: the last two are the aggregation and the tracking.
        cells: what scores each cell, encoder by encoder, task by task: one node for all seeds, or one per seed where
            each has its own constant heads. Cells that share a result share its nodes.
        parents: each encoder on each task, as MLflow shows it, and its nodes that train for all of its cells.
    """

    nodes: tuple[Node, ...]
    cells: Mapping[Cell, tuple[Node, ...]]
    parents: Mapping[ParentRun, tuple[Node, ...]] = field(default_factory=dict)


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
