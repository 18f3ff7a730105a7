"""How often a head finds the gold head of a word: counts by relation, beside what position alone
finds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.corpora.treebank import Tree
from papa.descriptions.seen import ATTENTIONS, Seen

DIRECTIONS = ("from dependent", "from head")
"""Who looks: the dependent at its head, or the head at its dependent."""
ALL = "all"


class Relations(ABC):
    """A row for each relation, head and direction.

    ``correct`` of ``words`` have their gold head found, ``correct_in_half`` of ``words_in_half``
    in every other sentence: who picks the best head can pick in one half and count in the other.
    ``baseline`` is the share that position alone finds, picked and counted in that way; root words
    are left out.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, int], np.ndarray | int] = defaultdict(int)
        self.words: dict[tuple[str, int], int] = defaultdict(int)
        self.by_position: dict[tuple[str, int], np.ndarray | int] = defaultdict(int)
        self.sentences = 0
        self.last: tuple[Tensor, np.ndarray] | None = None

    @abstractmethod
    def judge(
        self, weights: Float[np.ndarray, "heads words words"], tree: Tree
    ) -> Bool[np.ndarray, "heads words"]:
        """Whether each head finds each word's gold head; rows of ``weights`` are dependents."""

    @abstractmethod
    def positions(self, tree: Tree) -> Bool[np.ndarray, "rules words"]:
        """Whether each rule that knows positions alone finds it."""

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
        half, found, guessed = self.sentences % 2, self.last[1], self.positions(seen.tree)
        for relation, at in _places(seen.tree):
            self.found[seen.of, relation, half] += found[..., at].sum(axis=-1)
            if first:
                self.words[relation, half] += len(at)
                self.by_position[relation, half] += guessed[:, at].sum(axis=-1)

    def frame(self) -> pd.DataFrame:
        parts = []
        for relation in dict.fromkeys(name for name, _ in self.words):
            words = [self.words[relation, half] for half in (0, 1)]
            guessed = [np.asarray(self.by_position[relation, half]) for half in (0, 1)]
            baseline = picked(guessed, words) / sum(words)
            for of in ATTENTIONS:
                halves = [self.found[of, relation, half] for half in (0, 1)]
                correct = np.asarray(halves[0] + halves[1])
                in_half = np.broadcast_to(halves[1], correct.shape)
                direction, layer, head = (axis.ravel() for axis in np.indices(correct.shape))
                parts.append(
                    pd.DataFrame(
                        {
                            "attention": of,
                            "relation": relation,
                            "layer": layer,
                            "head": head,
                            "direction": np.array(DIRECTIONS)[direction],
                            "words": sum(words),
                            "correct": correct.ravel(),
                            "words_in_half": words[1],
                            "correct_in_half": in_half.ravel(),
                            "baseline": baseline,
                        }
                    )
                )
        return pd.concat(parts, ignore_index=True)


def picked(correct: list[np.ndarray], words: list[int]) -> float:
    """What the best of several finds, picked in each half and counted in the other; in all where a
    half has no word.
    """
    if not all(words):
        return float((correct[0] if words[0] else correct[1]).max())
    return float(correct[1].flat[correct[0].argmax()] + correct[0].flat[correct[1].argmax()])


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
