"""How often a head finds the gold head of a word, by the largest weight or in a maximum spanning
tree, beside what position alone finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.descriptions.seen import ATTENTIONS, Seen, rows
from papa.descriptions.treebank import Tree
from papa.scores.intervals import wilson

DIRECTIONS = ("from dependent", "from head")
"""Who looks: the dependent at its head, or the head at its dependent."""
ALL, POSITION = "all", "position alone"


class Relations:
    """Of each relation (``of``), the share of words whose gold head each head finds, by direction,
    with its 95 % interval over words (Wilson), and how many ``words`` there are, without roots.

    ``best`` is the share that the best head and direction, or rule of positions alone, find, picked
    in every other sentence and counted in the rest, and the reverse, as the best of many is good by
    luck too; its layer and head are those with the most words found.

    ``judge`` says whether each head, and ``position`` whether each rule that knows positions alone,
    finds each word's gold head.
    """

    def __init__(
        self,
        judge: Callable[
            [Float[np.ndarray, "heads words words"], Tree], Bool[np.ndarray, "heads words"]
        ],
        position: Callable[[Tree], Bool[np.ndarray, "rules words"]],
    ) -> None:
        self.judge, self.position = judge, position
        self.found: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, 0])
        self.words: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(2, dtype=int))
        self.sentences = 0
        self.last: tuple[Tensor, np.ndarray] | None = None

    def see(self, seen: Seen) -> None:
        assert seen.tree is not None
        # Where all heads are constant, they were judged as C: trees take long.
        if self.last is None or seen.of != "replaced" or not self.last[0].equal(seen.attention):
            weights = of_words(seen)
            both = torch.stack([weights, weights.transpose(-1, -2)])
            judged = [self.judge(own.flatten(0, 1).numpy(), seen.tree) for own in both]
            self.last = seen.attention, np.reshape(judged, (*both.shape[:3], -1))
        first = seen.of == "input-dependent"
        self.sentences += first
        half, guessed = self.sentences % 2, self.position(seen.tree)
        for relation, at in _places(seen.tree):
            self.found[seen.of, relation][half] += self.last[1][..., at].sum(axis=-1)
            if first:
                self.words[relation][half] += len(at)
                self.found[POSITION, relation][half] += guessed[:, at].sum(axis=-1)

    def frame(self) -> pd.DataFrame:
        parts = []
        for relation, words in self.words.items():
            parts.append(rows(POSITION, "words", words.sum(), of=relation))
            for of in (POSITION, *ATTENTIONS):
                halves = np.stack(np.broadcast_arrays(*self.found[of, relation]))
                correct, places = halves.sum(axis=0), dict[str, Any]()
                if of != POSITION:
                    _, *best = np.unravel_index(correct.argmax(), correct.shape)
                    places = dict(zip(("layer", "head"), best, strict=True))
                told: list[tuple[str, Any, dict[str, Any]]] = [
                    ("best", picked(halves, words), places)
                ]
                if of != POSITION:
                    layer, head = (axis.ravel() for axis in np.indices(correct.shape[1:]))
                    places = {"layer": layer, "head": head}
                    told += [(*one, places) for one in zip(DIRECTIONS, correct, strict=True)]
                for measure, found, place in told:
                    share = np.ravel(found) / words.sum()
                    low, high = wilson(share, int(words.sum()))
                    of_measure = rows(of, measure, share, of=relation, **place)
                    parts.append(of_measure.assign(low=low, high=high))
        return pd.concat(parts, ignore_index=True)


def picked(correct: Int[np.ndarray, " 2 *heads"], words: Int[np.ndarray, " 2"]) -> int:
    """What the best of several finds, picked in each half and counted in the other, or in all."""
    if not words.all():
        return int(correct[0 if words[0] else 1].max())
    return int(correct[1].flat[correct[0].argmax()] + correct[0].flat[correct[1].argmax()])


def _places(tree: Tree) -> list[tuple[str, np.ndarray]]:
    """Where the words of each relation are, and of all; without the root."""
    hanging = tree.heads >= 0
    names = np.array(tree.relations)
    own = [(str(name), np.flatnonzero(hanging & (names == name))) for name in np.unique(names)]
    return [(name, at) for name, at in [(ALL, np.flatnonzero(hanging)), *own] if len(at)]


def of_words(seen: Seen) -> Float[Tensor, "layers heads words words"]:
    """Attention between words: columns of a word's tokens are added, its rows averaged (Clark et
    al., 2019, Section 4.1); special tokens are left out.
    """
    assert seen.words is not None
    member = torch.nn.functional.one_hot(seen.words + 1)[:, 1:].to(seen.attention.dtype)
    return (member / member.sum(dim=0)).T @ (seen.attention @ member)


def by_largest(
    weights: Float[np.ndarray, "heads words words"], tree: Tree
) -> Bool[np.ndarray, "heads words"]:
    """Whether the other word with the largest weight is a word's head (Clark et al., 2019, Section
    4.2); rows of ``weights`` are dependents.
    """
    others = np.where(np.eye(len(tree.heads), dtype=bool), -np.inf, weights)
    return others.argmax(axis=-1) == tree.heads


def at_offsets(tree: Tree) -> Bool[np.ndarray, "rules words"]:
    """Whether it stands at a fixed offset."""
    offsets = tree.heads - np.arange(len(tree.heads))
    return (np.array([-3, -2, -1, 1, 2])[:, None] == offsets) & (tree.heads >= 0)


def by_tree(
    weights: Float[np.ndarray, "heads words words"], tree: Tree
) -> Bool[np.ndarray, "heads words"]:
    """Whether the two are joined in the tree from the gold root with the largest sum of log
    weights, which are clipped first (Htut et al., 2019, Section 3).
    """
    edges = np.log(weights.clip(0.001, 0.999)).swapaxes(-1, -2)
    parents = np.stack([arborescence(own, int(tree.heads.argmin())) for own in edges])
    up = parents == tree.heads
    return (up | (parents[:, tree.heads] == np.arange(len(tree.heads)))) & (tree.heads >= 0)


def beside(tree: Tree) -> Bool[np.ndarray, "rules words"]:
    """Whether it is the next word, or the one before."""
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
    up, at = np.where(parents < 0, root, parents), np.arange(len(parents))
    for _ in parents:
        at = up[at]
    # Who goes up for long ends at the root, or goes round.
    if (at == root).all():
        return parents
    loop = [at[at != root][0]]
    while up[loop[-1]] != loop[0]:
        loop.append(up[loop[-1]])
    cycle = np.sort(loop)
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
