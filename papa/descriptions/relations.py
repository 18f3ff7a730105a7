"""How often an attention head finds the gold head of a word, by its largest weight or in a maximum
spanning tree, with baselines that know positions alone.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.descriptions.observation import ATTENTIONS, Observation, measure_rows
from papa.descriptions.treebank import Tree
from papa.scores.intervals import wilson

DIRECTIONS = ("from dependent", "from head")
"""Which of two words attends to the other: the dependent to its head, or the head to it."""
ALL = "all"
POSITION = "position alone"
Judge = Callable[[Float[np.ndarray, "heads words words"], Tree], Bool[np.ndarray, "heads words"]]
"""From attention between words to whether each attention head finds each word's gold head."""
PositionRules = Callable[[Tree], Bool[np.ndarray, "rules words"]]
"""Whether each rule that knows positions alone finds each word's gold head."""


class Relations:
    """Of each relation (``of``), the share of words whose gold head each head finds, by direction,
    with its 95 % interval over words (Wilson), and how many ``words`` there are, without roots.

    ``best`` is the share that the best head and direction, or rule of positions alone, find, picked
    in every other sentence and counted in the rest, and the reverse, as the best of many is good by
    luck too; its layer and head are those with the most words found.

    Args:
        judge: says which attention heads find a word's gold head.
        position: says the same of rules that know positions alone.
    """

    def __init__(self, judge: Judge, position: PositionRules) -> None:
        self.judge = judge
        self.position = position
        # By attention and relation, in odd and even sentences: the words found, [2, layers, heads]
        # (0 before the first), or [rules] by position.
        self.correct: dict[tuple[str, str], list[np.ndarray | int]] = defaultdict(lambda: [0, 0])
        self.words: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(2, dtype=int))
        self.sentences = 0
        self.last: tuple[Tensor, Bool[np.ndarray, "2 layers heads words"]] | None = None

    def observe(self, text: Observation) -> None:
        tree = text.tree
        assert tree is not None
        judged = self._judged(text, tree)
        is_first = text.source == "input-dependent"
        self.sentences += is_first
        half = self.sentences % 2
        judged_by_position = self.position(tree)
        for relation, words in _words_by_relation(tree):
            self.correct[text.source, relation][half] += judged[..., words].sum(axis=-1)
            if is_first:
                self.words[relation][half] += len(words)
                correct = judged_by_position[:, words].sum(axis=-1)
                self.correct[POSITION, relation][half] += correct

    def _judged(self, text: Observation, tree: Tree) -> Bool[np.ndarray, "2 layers heads words"]:
        """Return which attention heads find each word's gold head, by direction."""
        # If all heads are constant, the replaced attention is C, judged before: trees take long.
        if text.source == "replaced" and self.last and self.last[0].equal(text.attention):
            return self.last[1]
        weights = attention_of_words(text)
        directions = torch.stack([weights, weights.transpose(-1, -2)])
        judged = [self.judge(weights.flatten(0, 1).numpy(), tree) for weights in directions]
        by_direction = np.reshape(judged, (*directions.shape[:3], -1))
        self.last = (text.attention, by_direction)
        return by_direction

    def frame(self) -> pd.DataFrame:
        frames = []
        for relation, words in self.words.items():
            word_count = int(words.sum())
            frames.append(measure_rows(POSITION, "words", word_count, of=relation))
            for source in (POSITION, *ATTENTIONS):
                halves = np.stack(np.broadcast_arrays(*self.correct[source, relation]))
                correct = halves.sum(axis=0)
                best = np.array([cross_validated_best(halves, words)])
                if source == POSITION:
                    frames.append(_shares(source, "best", best, word_count, relation))
                    continue
                _, layer, head = np.unravel_index(correct.argmax(), correct.shape)
                frames.append(
                    _shares(source, "best", best, word_count, relation, int(layer), int(head))
                )
                layers, heads = (index.ravel() for index in np.indices(correct.shape[1:]))
                for direction, correct_heads in zip(DIRECTIONS, correct, strict=True):
                    frames.append(
                        _shares(
                            source,
                            direction,
                            correct_heads.ravel(),
                            word_count,
                            relation,
                            layers,
                            heads,
                        )
                    )
        return pd.concat(frames, ignore_index=True)


def _shares(
    source: str,
    measure: str,
    correct: Int[np.ndarray, " n"],
    words: int,
    relation: str,
    layer: Int[np.ndarray, " n"] | int | None = None,
    head: Int[np.ndarray, " n"] | int | None = None,
) -> pd.DataFrame:
    """Return rows with the shares of a relation's words that are correct, and their intervals."""
    share = correct / words
    low, high = wilson(share, words)
    rows = measure_rows(source, measure, share, layer=layer, head=head, of=relation)
    return rows.assign(low=low, high=high)


def cross_validated_best(
    correct: Int[np.ndarray, " 2 *heads"], words: Int[np.ndarray, " 2"]
) -> int:
    """Return how many words the best head finds: picked in each half and counted in the other, or
    in all words if one half has none.
    """
    if not words.all():
        return int(correct[0 if words[0] else 1].max())
    return int(correct[1].flat[correct[0].argmax()] + correct[0].flat[correct[1].argmax()])


def _words_by_relation(tree: Tree) -> list[tuple[str, np.ndarray]]:
    """Return the numbers of the words of each relation, and of all; without the root."""
    has_head = tree.heads >= 0
    names = np.array(tree.relations)
    words = [(ALL, np.flatnonzero(has_head))]
    words += [(str(name), np.flatnonzero(has_head & (names == name))) for name in np.unique(names)]
    return [(name, numbers) for name, numbers in words if len(numbers)]


def attention_of_words(text: Observation) -> Float[Tensor, "layers heads words words"]:
    """Return attention between words: columns of a word's tokens are added, its rows averaged
    (Clark et al., 2019, Section 4.1); special tokens are left out.
    """
    assert text.words is not None
    # Special tokens have the number -1 and so column 0.
    is_token_of = torch.nn.functional.one_hot(text.words + 1)[:, 1:].to(text.attention.dtype)
    return (is_token_of / is_token_of.sum(dim=0)).T @ (text.attention @ is_token_of)


def by_largest(
    weights: Float[np.ndarray, "heads words words"], tree: Tree
) -> Bool[np.ndarray, "heads words"]:
    """Return whether the other word with the largest weight is a word's head (Clark et al., 2019,
    Section 4.2); rows of ``weights`` are dependents.
    """
    without_itself = np.where(np.eye(len(tree.heads), dtype=bool), -np.inf, weights)
    return without_itself.argmax(axis=-1) == tree.heads


def at_offsets(tree: Tree) -> Bool[np.ndarray, "rules words"]:
    """Return whether a word's head stands at each of five fixed offsets."""
    offsets = tree.heads - np.arange(len(tree.heads))
    return (np.array([-3, -2, -1, 1, 2])[:, None] == offsets) & (tree.heads >= 0)


def by_tree(
    weights: Float[np.ndarray, "heads words words"], tree: Tree
) -> Bool[np.ndarray, "heads words"]:
    """Return whether a word and its head are joined in the tree from the gold root with the largest
    sum of log weights, which are clipped first (Htut et al., 2019, Section 3).
    """
    edges = np.log(weights.clip(0.001, 0.999)).swapaxes(-1, -2)
    root = int(tree.heads.argmin())
    parents = np.stack([arborescence(edges_of_head, root) for edges_of_head in edges])
    is_parent = parents == tree.heads
    is_child = parents[:, tree.heads] == np.arange(len(tree.heads))
    return (is_parent | is_child) & (tree.heads >= 0)


def is_adjacent(tree: Tree) -> Bool[np.ndarray, "rules words"]:
    """Return whether a word's head is the next word, or the one before."""
    adjacent = np.abs(tree.heads - np.arange(len(tree.heads))) == 1
    return (adjacent & (tree.heads >= 0))[None]


def arborescence(weights: Float[np.ndarray, "n n"], root: int) -> Int[np.ndarray, " n"]:
    """Return the parent of each node, -1 for ``root``, in the heaviest tree of all nodes below it
    (Chu and Liu, 1965; Edmonds, 1967); weights are of edges from parent (row) to child.
    """
    weights = weights.astype(np.float64)
    np.fill_diagonal(weights, -np.inf)
    parents = weights.argmax(axis=0)
    parents[root] = -1
    parents_or_root = np.where(parents < 0, root, parents)
    # After as many steps upwards as there are nodes, each is at the root or in a cycle.
    ancestors = np.arange(len(parents))
    for _ in parents:
        ancestors = parents_or_root[ancestors]
    if (ancestors == root).all():
        return parents
    loop = [ancestors[ancestors != root][0]]
    while parents_or_root[loop[-1]] != loop[0]:
        loop.append(parents_or_root[loop[-1]])
    cycle = np.sort(loop)
    outside = np.setdiff1d(np.arange(len(parents)), cycle)
    # The cycle becomes one node, the last; an edge into it replaces the cycle's edge to that node.
    entering = weights[np.ix_(outside, cycle)] - weights[parents[cycle], cycle]
    leaving = weights[np.ix_(cycle, outside)]
    last = len(outside)
    contracted = np.full((last + 1, last + 1), -np.inf)
    contracted[:last, :last] = weights[np.ix_(outside, outside)]
    contracted[:last, last] = entering.max(axis=1)
    contracted[last, :last] = leaving.max(axis=0)
    contracted_parents = arborescence(contracted, int(np.searchsorted(outside, root)))
    for node, parent in zip(outside, contracted_parents[:last], strict=True):
        if parent == last:
            parents[node] = cycle[leaving[:, np.searchsorted(outside, node)].argmax()]
        elif parent >= 0:
            parents[node] = outside[parent]
    entered = cycle[entering[contracted_parents[last]].argmax()]
    parents[entered] = outside[contracted_parents[last]]
    return parents
