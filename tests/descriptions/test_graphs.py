"""Spanning trees and flows against networkx; rollout by hand; heads planted to know trees."""

from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from papa.descriptions.observation import ATTENTIONS
from papa.descriptions.registry import TREE_DESCRIPTIONS
from papa.descriptions.relations import (
    ALL,
    POSITION,
    arborescence,
    attention_of_words,
    cross_validated_best,
)
from papa.descriptions.rollout import INPUT_DEPENDENT_PART, Rollout, flows_from, step_matrices
from papa.descriptions.treebank import Tree
from papa.scores.intervals import wilson
from tests.descriptions.observations import observation_of, values
from tests.text.conftest import bert  # noqa: F401


@pytest.mark.parametrize("n", [2, 3, 5, 12])
@pytest.mark.parametrize("seed", range(6))
def test_arborescences_are_as_heavy_as_those_of_networkx(n: int, seed: int) -> None:
    weights = np.log(np.random.default_rng(seed).random((n, n)))
    # Ties and cycles: as attention often has them.
    weights[:, : n // 2] = weights[:, : n // 2].round(0)
    root = seed % n
    parents = arborescence(weights, root)
    assert parents[root] == -1
    children = [child for child in range(n) if child != root]
    graph = nx.DiGraph()
    edges = [(parent, child) for parent, child in product(range(n), children) if parent != child]
    graph.add_weighted_edges_from((*edge, weights[edge]) for edge in edges)
    best = nx.maximum_spanning_arborescence(graph, preserve_attrs=True)
    tree = nx.DiGraph([(int(parents[child]), child) for child in children])
    assert nx.is_arborescence(tree)
    assert set(tree) == set(range(n))
    weight = sum(weights[parents[child], child] for child in children)
    assert weight == pytest.approx(best.size(weight="weight"))


def steps() -> torch.Tensor:
    return step_matrices(torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(0)).pow(6))


def test_flows_are_those_of_networkx() -> None:
    matrices = steps().numpy()
    graph = nx.DiGraph()
    for (layer, i, j), capacity in np.ndenumerate(matrices):
        graph.add_edge((layer + 1, i), (layer, j), capacity=float(capacity))
    changed = matrices.copy()
    changed[1] = np.eye(4)
    for token in (0, 2):
        expected = [nx.maximum_flow_value(graph, (3, token), (0, sink)) for sink in range(4)]
        np.testing.assert_allclose(flows_from(matrices, token), expected, atol=1e-4)
        assert not np.allclose(flows_from(changed, token), expected, atol=1e-2), "negative control"


def test_rollout_multiplies_from_below() -> None:
    matrices = steps()
    shares = Rollout().token_shares(matrices)
    torch.testing.assert_close(shares[-1], matrices[2] @ matrices[1] @ matrices[0])
    assert not torch.allclose(shares[-1], matrices[0] @ matrices[1] @ matrices[2]), "control"
    torch.testing.assert_close(shares.sum(dim=-1), torch.ones(3, 4, dtype=torch.double))
    # One head that looks at the last token alone: half of each state, by the residual.
    asleep = torch.zeros(1, 1, 2, 2)
    asleep[..., 1] = 1
    assert step_matrices(asleep)[0].tolist() == [[0.5, 0.5], [0, 1]]


def test_rollout_says_what_of_it_is_constant() -> None:
    generator = torch.Generator().manual_seed(1)
    attention_matrices = torch.rand(2, 3, 4, 4, generator=generator).softmax(dim=-1)
    rollout = Rollout()
    same = Rollout()
    constant = torch.full_like(attention_matrices, 0.25)
    rollout.observe(observation_of("input-dependent", attention_matrices))
    rollout.observe(observation_of("constant", constant))
    frame = rollout.frame()
    assert values(frame, "as_input_dependent").tolist() == pytest.approx([1, 1])
    assert (values(frame, "as_input_dependent", "constant") < 0.999).all()
    for kind in ("input-dependent", "constant"):
        same.observe(observation_of(kind, attention_matrices))
    whole = same.frame()
    assert values(whole, "as_input_dependent", "constant").tolist() == pytest.approx([1, 1])
    # Nothing is above the constant, so that each state is its own token's.
    assert values(whole, "own", INPUT_DEPENDENT_PART).tolist() == pytest.approx([1, 1])


TREES = [
    Tree(("the", "old", "dog", "sat"), np.array([2, 2, 3, -1]), ("det", "amod", "nsubj", "root")),
    Tree(("a", "dog", "sat", "up"), np.array([1, 2, -1, 2]), ("det", "nsubj", "root", "advmod")),
] * 2
WORDS = [-1, 0, 1, 1, 2, 3, -1]
"""The second word has two tokens."""


def attention(tree: Tree) -> torch.Tensor:
    """Heads look at the head of a dependent, at its dependents, at the next word, and at [SEP]."""
    n = len(WORDS)
    positions = [[position for position, word in enumerate(WORDS) if word == k] for k in range(4)]
    matrices = torch.full((4, n, n), 0.01)
    for word, head in enumerate(tree.heads):
        for row in positions[word]:
            matrices[2, row, positions[min(word + 1, 3)]] += 1
            if head >= 0:
                matrices[0, row, positions[head]] += 1
        for row in positions[head] if head >= 0 else ():
            matrices[1, row, positions[word]] += 1
    matrices[3, :, -1] += 1
    return (matrices / matrices.sum(dim=-1, keepdim=True))[None]


def frames(kind):
    description = TREE_DESCRIPTIONS[kind]()
    for tree in TREES:
        tree_attention = attention(tree)
        for attention_name, kind_attention in [
            ("input-dependent", tree_attention),
            ("constant", tree_attention.flip(1)),
            ("replaced", tree_attention),
        ]:
            description.observe(observation_of(attention_name, kind_attention, tree, WORDS))
    return description.frame()


def test_words_sum_columns_of_averaged_rows() -> None:
    matrix = torch.zeros(1, 1, 7, 7)
    matrix[0, 0, 2, 5] = 1
    matrix[0, 0, 3, 2] = 0.25
    matrix[0, 0, 3, 3] = 0.5
    word_attention = attention_of_words(observation_of("constant", matrix, TREES[0], WORDS))[0, 0]
    expected = torch.zeros(4, 4)
    # Not the first of the rows: their mean.
    expected[1, 3] = 0.5
    expected[1, 1] = 0.375
    torch.testing.assert_close(word_attention, expected)


@pytest.mark.parametrize("kind", TREE_DESCRIPTIONS)
def test_heads_that_know_the_tree_are_found(kind) -> None:
    frame = frames(kind)
    looks = {kind_of: values(frame, "from dependent", kind_of) for kind_of in ATTENTIONS}
    input_dependent = looks["input-dependent"][0]
    assert input_dependent[0, ALL] == 1
    assert values(frame, "from head")[0, 1, ALL] == 1 or kind == "syntax"
    assert input_dependent[3, ALL] < 0.6, "one that sleeps"
    assert looks["constant"][0, 3, ALL] == 1, "heads are the other way round there"
    assert looks["replaced"][0].equals(input_dependent), "each of its own"
    assert input_dependent[2, "det"] == 0.5, "of the next word, in every other sentence"


def test_position_alone_is_the_best_offset() -> None:
    words, best = (values(frames("syntax"), name, POSITION) for name in ("words", "best"))
    # nsubj is always one before its head; det is one or two before it, by the sentence's parity, so
    # that what is picked in one half fails in the other.
    assert (words["nsubj"], best["nsubj"]) == (4, 1)
    assert (words["det"], best["det"]) == (4, 0)
    assert words[ALL] == 12
    assert "root" not in words
    chain = values(frames("trees"), "best", POSITION)
    assert (chain["nsubj"], chain["det"]) == (1, 0.5)


def test_the_best_head_is_counted_in_the_other_half() -> None:
    first = np.array([5, 0, 4])
    second = np.array([0, 5, 4])
    # Not the 5 of 10 that picking afterwards shows.
    assert cross_validated_best(np.stack([first, second]), np.array([5, 5])) == 0
    assert cross_validated_best(np.stack([first, first]), np.array([5, 5])) == 10
    assert cross_validated_best(np.array([[0, 0], [1, 2]]), np.array([0, 3])) == 2, "an empty half"


@pytest.mark.parametrize(("count", "total"), [(7, 10), (0, 9)])
def test_intervals_of_shares_are_wilsons(count: int, total: int) -> None:
    expected = binomtest(count, total).proportion_ci(method="wilson")
    assert wilson(np.array([count / total]), total) == pytest.approx((expected.low, expected.high))
