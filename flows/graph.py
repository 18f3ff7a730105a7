"""What a study consists of: its steps, what each builds on, and the nodes that score each cell.

A node makes its step once the artifacts it needs are known, because keys are built on digests. The planner
and the flow walk the same graph: the one asks the store, the other runs what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from tasks.step import Step


@dataclass(frozen=True, eq=False)
class Node:
    """One step to be, and the nodes it builds on.

    Attributes:
        stage: its stage.
        name: what people call it.
        flops: about how much work it is.
        needs: the nodes whose artifacts it builds on.
        make: its step, from name, flops and the references of ``needs``, in order.
    """

    stage: str
    name: str
    flops: float
    needs: tuple[Node, ...]
    make: Callable[..., Step]

    def step(self, references: Sequence[ArtifactReference]) -> Step:
        """The step, once the artifacts of ``needs`` are known."""
        return self.make(self.name, self.flops, *references)


@dataclass(frozen=True)
class Graph:
    """A study's nodes, each after those it needs, and its cells.

    Attributes:
        nodes: the last two are the aggregation and the tracking.
        cells: what scores each cell, encoder by encoder, task by task: one node for all seeds, or one a seed where
            each has its own constant heads. Cells that share a result share its nodes.
    """

    nodes: tuple[Node, ...]
    cells: Mapping[Cell, tuple[Node, ...]]
