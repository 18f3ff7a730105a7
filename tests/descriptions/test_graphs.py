"""Spanning trees and flows against networkx; rollout by hand; heads planted to know trees."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.stats import binomtest
from transformers import PreTrainedTokenizerBase

from papa.descriptions.observation import ATTENTIONS
from papa.descriptions.registry import TREE_DESCRIPTIONS, joined
from papa.descriptions.relations import (
    ALL,
    POSITION,
    arborescence,
    attention_of_words,
    cross_validated_best,
)
from papa.descriptions.rollout import INPUT_DEPENDENT_PART, Rollout, flows_from, step_matrices
from papa.descriptions.treebank import Tree, lay_out, read_trees, trees_of
from papa.errors import DataError
from papa.reporting.tables import described_tables
from papa.scores.intervals import wilson
from papa.text.table import SourceTable
from papa.text.tokens import special_tokens_of
from tests.descriptions.test_descriptions import observation_of, values
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
    """Head 0 looks from each dependent at its head, head 1 from the head at each dependent, head 2
    at the next word, head 3 at the separator.
    """
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
    looks = {
        attention_name: values(frame, "from dependent", attention_name)
        for attention_name in ATTENTIONS
    }
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
    assert cross_validated_best(np.array([[0, 0], [1, 2]]), np.array([0, 3])) == 2, (
        "one half has no word"
    )


def test_the_best_head_is_told_with_its_interval() -> None:
    frame = joined({"syntax": frames("syntax")}, ["description"], [])
    _, table = described_tables(frame)
    assert table.headings[-3:] == ["input-dependent", "constant", "replaced"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows[ALL][0] == "12"
    assert rows[ALL][2] == "1.00 [0.76, 1.00] 0.0"
    for count, total in ((7, 10), (0, 9)):
        expected = binomtest(count, total).proportion_ci(method="wilson")
        assert wilson(np.array([count / total]), total) == pytest.approx(
            (expected.low, expected.high)
        )


FILE = """\
# sent_id = 1
# text = He didn't run.
1\tHe\the\tPRON\tPRP\t_\t4\tnsubj:outer\t_\t_
2-3\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdid\tdo\tAUX\tVBD\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
3.1\tmaybe\t_\t_\t_\t_\t_\t_\t4:dep\t_
4\trun\trun\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

# sent_id = 2
1\tUnbelievably\t_\tADV\tRB\t_\t2\tadvmod\t_\t_
2\tgood\t_\tADJ\tJJ\t_\t0\troot\t_\t_
"""


def table(tokens: object, head: object, deprel: object) -> SourceTable:
    return SourceTable(pa.table({"tokens": tokens, "head": head, "deprel": deprel}), "trees.jsonl")


def written(folder: Path, text: str) -> list[Tree]:
    (folder / "two.conllu").write_text(text)
    return read_trees(folder / "two.conllu")


def test_a_table_of_the_hub_gives_the_trees_of_conllu(tmp_path: Path) -> None:
    first, second = written(tmp_path, FILE)
    assert first.words == ("He", "did", "n't", "run", ".")
    assert first.heads.tolist() == [3, 3, 3, -1, 3]
    assert first.relations == ("nsubj", "aux", "advmod", "root", "punct")
    assert second.heads.tolist() == [1, -1]
    words = ["He", "didn't", "did", "n't", "run", "."]
    heads = ["4", "None", "4", "4", "0", "4"]
    (trees_of_table,) = trees_of(
        table([words], [heads], [["nsubj", "_", "aux", "advmod", "root", "punct"]])
    )
    assert (trees_of_table.words, trees_of_table.heads.tolist()) == (
        first.words,
        first.heads.tolist(),
    )


def test_tokens_know_their_words(tmp_path: Path, bert: PreTrainedTokenizerBase) -> None:  # noqa: F811
    trees = written(tmp_path, FILE)
    special_tokens = special_tokens_of(bert)
    laid = lay_out(trees, bert, special_tokens, 32)
    rows = np.split(laid.tokens.input_ids, laid.tokens.offsets[1:-1])
    for tree, words, ids in zip(laid.trees, laid.words, rows, strict=True):
        assert words[[0, -1]].tolist() == [-1, -1]
        for number, word in enumerate(tree.words):
            assert bert.decode(ids[words == number]).replace(" ", "") == word.lower()
    assert len(np.unique(laid.words[1])) < len(laid.words[1]), "a word of several tokens is tried"
    short = lay_out(trees, bert, special_tokens, 8)
    assert [tree.words[0] for tree in short.trees] == ["Unbelievably"]
    assert short.dropped == 1
    with pytest.raises(DataError, match="slots, now 4"):
        lay_out(trees, bert, special_tokens, 4)


@pytest.mark.parametrize(
    ("head", "relations", "expected"),
    [
        ([2, 2], ["x", "x"], r"sentence 1 is no tree .0 roots"),
        ([0, 0], ["x", "x"], r"sentence 1 is no tree .2 roots"),
        ([3, 0], ["x", "x"], "sentence 1 is no tree"),
        ([2, 1, 0], ["x", "x", "x"], "sentence 1 is no tree .1 roots among 3"),
        (["x", "0"], ["x", "x"], "as heads the numbers of words"),
        ([0], ["x"], "lists of one length"),
    ],
)
def test_what_is_no_tree_is_one_sentence(head: Any, relations: Any, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        trees_of(table([["a", "b", "c"][: max(len(head), 2)]], [head], [relations]))


def test_files_without_trees(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text\na\n")
    with pytest.raises(DataError, match=r"texts.csv has no trees .columns: text."):
        read_trees(tmp_path / "texts.csv")
    with pytest.raises(DataError, match="sentence 1 has a word without a head"):
        written(tmp_path, "1\tw\t_\tX\t_\t_\t0\troot\t_\t_\n2\tw\t_\tX\t_\t_\t_\tdep\t_\t_\n")
