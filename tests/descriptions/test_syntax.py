"""Planted heads that know a sentence's tree, and heads that know its positions alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from papa.descriptions.relations import ALL, POSITION, of_words, picked
from papa.descriptions.seen import ATTENTIONS
from papa.descriptions.syntax import Syntax
from papa.descriptions.table import joined
from papa.descriptions.treebank import Tree
from papa.descriptions.trees import Trees
from papa.reporting.tables import described_tables
from papa.scores.intervals import wilson
from tests.descriptions.cases import seen, values

TREES = [
    Tree(
        ("the", "old", "dog", "barked"), np.array([2, 2, 3, -1]), ("det", "amod", "nsubj", "root")
    ),
    Tree(
        ("a", "dog", "barked", "loud"), np.array([1, 2, -1, 2]), ("det", "nsubj", "root", "advmod")
    ),
] * 2
WORDS = [-1, 0, 1, 1, 2, 3, -1]
"""The second word has two tokens."""


def attention(tree: Tree) -> torch.Tensor:
    """Head 0 looks from each dependent at its head, head 1 from the head at each dependent, head 2
    at the next word, head 3 at the separator.
    """
    n, places = len(WORDS), [[at for at, word in enumerate(WORDS) if word == k] for k in range(4)]
    found = torch.full((4, n, n), 0.01)
    for word, head in enumerate(tree.heads):
        for row in places[word]:
            found[2, row, places[min(word + 1, 3)]] += 1
            if head >= 0:
                found[0, row, places[head]] += 1
        for row in places[head] if head >= 0 else ():
            found[1, row, places[word]] += 1
    found[3, :, -1] += 1
    return (found / found.sum(dim=-1, keepdim=True))[None]


def frames(kind):
    description = kind()
    for tree in TREES:
        own = attention(tree)
        for of, one in [("input-dependent", own), ("constant", own.flip(1)), ("replaced", own)]:
            description.see(seen(of, one, tree, WORDS))
    return description.frame()


def test_words_add_columns_and_average_rows() -> None:
    matrix = torch.zeros(1, 1, 7, 7)
    matrix[0, 0, 2, 5], matrix[0, 0, 3, 2], matrix[0, 0, 3, 3] = 1, 0.25, 0.5
    found = of_words(seen("constant", matrix, TREES[0], WORDS))[0, 0]
    expected = torch.zeros(4, 4)
    # Not the first of the rows: their mean.
    expected[1, 3], expected[1, 1] = 0.5, 0.375
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", [Syntax, Trees])
def test_heads_that_know_the_tree_are_found(kind) -> None:
    frame = frames(kind)
    looks = {of: values(frame, "from dependent", of) for of in ATTENTIONS}
    own = looks["input-dependent"][0]
    assert own[0, ALL] == 1
    assert values(frame, "from head")[0, 1, ALL] == 1 or kind is Syntax
    assert own[3, ALL] < 0.6, "one that sleeps"
    assert looks["constant"][0, 3, ALL] == 1, "heads are the other way round there"
    assert looks["replaced"][0].equals(own), "each of its own"
    assert own[2, "det"] == 0.5, "of the next word, in every other sentence"


def test_position_alone_is_the_best_offset() -> None:
    words, best = (values(frames(Syntax), name, POSITION) for name in ("words", "best"))
    # nsubj is always one before its head; det is one or two before it, by the sentence's parity, so
    # that what is picked in one half fails in the other.
    assert (words["nsubj"], best["nsubj"]) == (4, 1)
    assert (words["det"], best["det"]) == (4, 0)
    assert words[ALL] == 12
    assert "root" not in words
    chain = values(frames(Trees), "best", POSITION)
    assert (chain["nsubj"], chain["det"]) == (1, 0.5)


def test_the_best_is_picked_in_one_half_and_counted_in_the_other() -> None:
    first, second = np.array([5, 0, 4]), np.array([0, 5, 4])
    assert picked(np.stack([first, second]), np.array([5, 5])) == 0, (
        "not the 5 of 10 that picking afterwards shows"
    )
    assert picked(np.stack([first, first]), np.array([5, 5])) == 10
    assert picked(np.array([[0, 0], [1, 2]]), np.array([0, 3])) == 2, "one half has no word"


def test_the_best_head_is_told_with_its_interval() -> None:
    frame = joined({"syntax": frames(Syntax)}, ["description"], [])
    _, table = described_tables(frame)
    assert table.headings[-3:] == ["input-dependent", "constant", "replaced"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows[ALL][0] == "12"
    assert rows[ALL][2] == "1.00 [0.76, 1.00] 0.0"
    for found, of in ((7, 10), (0, 9)):
        expected = binomtest(found, of).proportion_ci(method="wilson")
        assert wilson(np.array([found / of]), of) == pytest.approx((expected.low, expected.high))
