"""Dependencies by a maximum spanning tree: are a word and its gold head neighbours in it?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from papa.corpora.treebank import Tree
from papa.descriptions.arborescence import arborescence
from papa.descriptions.relations import Relations

LEAST, MOST = 0.001, 0.999
"""Weights are clipped to these before their logarithm (Htut et al., 2019)."""


class Trees(Relations):
    """The tree from the gold root with the largest sum of log weights, edges without their
    direction (Htut et al., 2019, Section 3); by position alone, each word beside the next.
    """

    def judge(
        self, weights: Float[np.ndarray, "heads words words"], tree: Tree
    ) -> Bool[np.ndarray, "heads words"]:
        # Rows are dependents, and edges go from heads to them.
        edges = np.log(weights.clip(LEAST, MOST)).swapaxes(-1, -2)
        parents = np.stack([arborescence(weights, tree.root) for weights in edges])
        up = parents == tree.heads
        return (up | (parents[:, tree.heads] == np.arange(len(tree.heads)))) & (tree.heads >= 0)

    def positions(self, tree: Tree) -> Bool[np.ndarray, "rules words"]:
        near = np.abs(tree.heads - np.arange(len(tree.heads))) == 1
        return (near & (tree.heads >= 0))[None]
