"""What of a study a store holds: the finished steps of its graph."""

from __future__ import annotations

from flows.graph import Graph, Node
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from tasks.step import Step
from tasks.store import Store


class StoredSteps:
    """The finished steps of a graph.

    Args:
        graph: a study's.
        store: what is asked.

    Attributes:
        steps: of each node whose inputs are known.
        references: of each node that is finished.
    """

    def __init__(self, graph: Graph, store: Store) -> None:
        self.graph = graph
        self.steps: dict[Node, Step] = {}
        self.references: dict[Node, ArtifactReference] = {}
        for node in graph.nodes:
            if not all(need in self.references for need in node.needs):
                continue
            step = self.steps[node] = node.step([self.references[need] for need in node.needs])
            if store.holds(step.stage, step.key):
                self.references[node] = store.reference(step.stage, step.key)

    def has(self, cell: Cell) -> bool:
        """Whether a cell is finished."""
        return all(node in self.references for node in self.graph.cells[cell])

    @property
    def cells(self) -> list[Cell]:
        """The finished cells."""
        return [cell for cell in self.graph.cells if self.has(cell)]
