"""Dependencies by the largest weight: does a head look most at a word's gold head?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from papa.descriptions.relations import Relations
from papa.descriptions.treebank import Tree


class Syntax(Relations):
    """A word's head is taken to be the other word with the largest weight (Clark et al., 2019,
    Section 4.2); by position alone, the word at the best fixed offset.
    """

    def judge(
        self, weights: Float[np.ndarray, "heads words words"], tree: Tree
    ) -> Bool[np.ndarray, "heads words"]:
        others = np.where(np.eye(len(tree.heads), dtype=bool), -np.inf, weights)
        return others.argmax(axis=-1) == tree.heads

    def positions(self, tree: Tree) -> Bool[np.ndarray, "rules words"]:
        offsets = tree.heads - np.arange(len(tree.heads))
        return (np.array([-3, -2, -1, 1, 2])[:, None] == offsets) & (tree.heads >= 0)
