"""Dependencies by a maximum spanning tree: are a word and its gold head neighbours in it?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from papa.descriptions.relations import Relations
from papa.descriptions.treebank import Tree


class Trees(Relations):
    """The tree from the gold root with the largest sum of log weights, which are clipped first,
    edges without direction (Htut et al., 2019, Section 3); by position, each word beside the next.
    """

    def judge(
        self, weights: Float[np.ndarray, "heads words words"], tree: Tree
    ) -> Bool[np.ndarray, "heads words"]:
        # Rows are dependents, and edges go from heads to them.
        edges = np.log(weights.clip(0.001, 0.999)).swapaxes(-1, -2)
        parents = np.stack([arborescence(weights, tree.root) for weights in edges])
        up = parents == tree.heads
        return (up | (parents[:, tree.heads] == np.arange(len(tree.heads)))) & (tree.heads >= 0)

    def positions(self, tree: Tree) -> Bool[np.ndarray, "rules words"]:
        near = np.abs(tree.heads - np.arange(len(tree.heads))) == 1
        return (near & (tree.heads >= 0))[None]


def arborescence(weights: Float[np.ndarray, "n n"], root: int) -> Int[np.ndarray, " n"]:
    """The parent of each node in the heaviest tree of all nodes that hangs from ``root``, -1 for
    the root (Chu and Liu, 1965; Edmonds, 1967); weights are of edges from parent (row) to child.
    """
    weights = weights.astype(np.float64)
    np.fill_diagonal(weights, -np.inf)
    parents = weights.argmax(axis=0)
    parents[root] = -1
    cycle = _cycle(parents)
    if cycle is None:
        return parents
    outside = np.setdiff1d(np.arange(len(parents)), cycle)
    # A cycle becomes one node; to enter it breaks the edge of the node where it is entered.
    entering = weights[np.ix_(outside, cycle)] - weights[parents[cycle], cycle]
    leaving = weights[np.ix_(cycle, outside)]
    last = len(outside)
    joined = np.full((last + 1, last + 1), -np.inf)
    joined[:last, :last] = weights[np.ix_(outside, outside)]
    joined[:last, last], joined[last, :last] = entering.max(axis=1), leaving.max(axis=0)
    found = arborescence(joined, int(np.searchsorted(outside, root)))
    for node, parent in zip(outside, found[:last], strict=True):
        if parent == last:
            parents[node] = cycle[leaving[:, np.searchsorted(outside, node)].argmax()]
        elif parent >= 0:
            parents[node] = outside[parent]
    entered = cycle[entering[found[last]].argmax()]
    parents[entered] = outside[found[last]]
    return parents


def _cycle(parents: Int[np.ndarray, " n"]) -> Int[np.ndarray, " cycle"] | None:
    """The nodes of a cycle, ascending; None where there is none."""
    seen = np.full(len(parents), -1)
    for start in range(len(parents)):
        node = start
        while node >= 0 and seen[node] < 0:
            seen[node] = start
            node = parents[node]
        if node >= 0 and seen[node] == start:
            nodes, after = [node], parents[node]
            while after != node:
                nodes.append(after)
                after = parents[after]
            return np.sort(nodes)
    return None
