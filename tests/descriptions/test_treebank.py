"""Syntax trees from CoNLL-U and from tables, laid out as tokens that know their words."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerBase as Tokenizer

from papa.descriptions.treebank import Tree, check_trees, lay_out, trees_of
from papa.errors import DataError
from papa.text.table import SourceTable, read_file
from papa.text.tokens import special_tokens_of
from tests.text.conftest import bert  # noqa: F401

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
    return trees_of(read_file(folder / "two.conllu"))


def test_a_table_of_the_hub_gives_the_trees_of_conllu(tmp_path: Path) -> None:
    first, second = written(tmp_path, FILE)
    assert first.words == ("He", "did", "n't", "run", ".")
    assert first.heads.tolist() == [3, 3, 3, -1, 3]
    assert first.relations == ("nsubj", "aux", "advmod", "root", "punct")
    assert second.heads.tolist() == [1, -1]
    words = ["He", "didn't", "did", "n't", "run", "."]
    heads = ["4", "None", "4", "4", "0", "4"]
    (tree,) = trees_of(table([words], [heads], [["nsubj", "_", "aux", "advmod", "root", "punct"]]))
    assert (tree.words, tree.heads.tolist()) == (first.words, first.heads.tolist())


def test_tokens_know_their_words(tmp_path: Path, bert: Tokenizer) -> None:  # noqa: F811
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
    ("head", "expected"),
    [
        ([2, 2], "sentence 1"),
        ([0, 0], "2 roots"),
        ([0, 5, 1], "1 roots among 3"),
        (["x", "0"], "numbers of words"),
    ],
)
def test_heads_that_are_no_tree_are_refused(head: list[object], expected: str) -> None:
    words = ["a", "b", "c"][: len(head)]
    with pytest.raises(DataError, match=expected):
        trees_of(table([words], [head], [["x"] * len(head)]))


def test_a_file_without_trees_names_its_columns(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text\na\n")
    with pytest.raises(DataError, match=r"texts.csv.*text"):
        check_trees(read_file(tmp_path / "texts.csv"))


def test_a_word_of_a_file_needs_a_head(tmp_path: Path) -> None:
    file = tmp_path / "trees.conllu"
    file.write_text(FILE.replace("\t4\t", "\t_\t", 1))
    with pytest.raises(DataError, match=r"sentence 1.*head"):
        check_trees(read_file(file), needs_heads=True)
