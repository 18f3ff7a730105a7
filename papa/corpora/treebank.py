"""Sentences with gold trees, in the words and dependencies of Universal Dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from papa.corpora.batches import MicroBatch, rows_of_like_length
from papa.corpora.layout import arrange_one
from papa.corpora.local_files import format_of, read_file
from papa.corpora.ragged import PackedTokens, Ragged
from papa.corpora.table import SourceTable
from papa.corpora.tokens import SpecialTokens, tokens_of_words
from papa.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COLUMNS = ("tokens", "head", "deprel")
"""Of a table of trees, as the hub's Universal Dependencies name them."""
_NONE = {"_", "None", ""}
"""What stands where nothing is said: what has no head is no word of the tree, such as "don't"
beside "do" and "n't".
"""


@dataclass(frozen=True)
class Tree:
    """A sentence's gold tree over its words.

    Attributes:
        heads: the number of each word's head, from 0; -1 for the root.
        relations: of each word to its head, without subtypes.
    """

    words: tuple[str, ...]
    heads: Int[np.ndarray, " words"]
    relations: tuple[str, ...]

    @property
    def root(self) -> int:
        """The number of the root."""
        return int(np.flatnonzero(self.heads == -1)[0])


@dataclass(frozen=True)
class LaidTrees:
    """Sentences in the slots of an encoder's layout.

    Attributes:
        words: the number of each token's word, -1 for special tokens, sentence by sentence.
        dropped: how many sentences do not fit.
    """

    trees: tuple[Tree, ...]
    words: tuple[Int[np.ndarray, " _"], ...]
    tokens: PackedTokens
    dropped: int

    def batches(self, batch_tokens: int) -> Iterator[MicroBatch]:
        """Micro-batches of sentences of like length; their rows are numbers of sentences."""
        for rows in rows_of_like_length(
            self.tokens.first_lengths, self.tokens.lengths, batch_tokens
        ):
            yield MicroBatch.of(rows, self.tokens.take(rows))


def has_trees(columns: Sequence[str]) -> bool:
    """Whether a table with these columns holds trees."""
    return set(COLUMNS) <= set(columns)


def read_trees(path: Path) -> list[Tree]:
    """The trees of a file: CoNLL-U where its name ends in ``.conllu``, else a table with the
    columns ``tokens``, ``head`` and ``deprel``.
    """
    if format_of(path) is None:
        raise DataError(
            f"{path} has no trees: give a .conllu file, or a table with the columns "
            f"{', '.join(COLUMNS)}"
        )
    table = read_file(path, None, header=True)
    if format_of(path) == "conllu":
        # Of the hub's tables, these are ranges such as "don't"; here each is a word.
        for number, heads in enumerate(table.rows["head"].to_pylist(), 1):
            if _NONE & {*heads}:
                raise DataError(
                    f"{path}: sentence {number} has a word without a head, and heads count every "
                    "word: give its head, 0 for the root"
                )
    return trees_of(table)


def trees_of(table: SourceTable) -> list[Tree]:
    """The trees of a table with the columns ``tokens``, ``head`` and ``deprel``, heads counted from
    1 and 0 for the root, as in CoNLL-U.
    """
    if not has_trees(table.rows.column_names):
        raise DataError(
            f"{table.origin} has no trees (columns: {', '.join(table.rows.column_names)}): give a "
            f".conllu file, or a table with the columns {', '.join(COLUMNS)}"
        )
    columns = (table.column(name).to_pylist() for name in COLUMNS)
    trees = [
        _tree(list(row), f"{table.origin}: sentence {number}")
        for number, row in enumerate(zip(*columns, strict=True), 1)
    ]
    if not trees:
        raise DataError(f"{table.origin} has no sentence: give at least one")
    return trees


def _tree(row: list[Any], where: str) -> Tree:
    if not all(isinstance(column, list) for column in row) or len(set(map(len, row))) != 1:
        raise DataError(f"{where}: give lists of one length in {', '.join(COLUMNS)}")
    words = [word for word in zip(*row, strict=True) if str(word[1]) not in _NONE]
    for number, (word, _, relation) in enumerate(words, 1):
        if str(relation) in _NONE:
            raise DataError(
                f"{where}: word {number} ('{word}') has a head and no deprel: give its relation, "
                "'dep' where it is not known"
            )
    try:
        heads = np.array([int(head) - 1 for _, head, _ in words], dtype=np.int64)
    except ValueError:
        raise DataError(
            f"{where}: a head is no number: give 0 for the root, else a word's"
        ) from None
    roots, last = int((heads == -1).sum()), len(heads) - 1
    if roots != 1 or heads.min() < -1 or heads.max() > last or not _reach(heads):
        raise DataError(
            f"{where} is no tree ({roots} roots among {len(heads)} words): give every word one "
            "head from 1 on, and the root 0"
        )
    return Tree(
        tuple(str(word) for word, *_ in words),
        heads,
        tuple(str(relation).partition(":")[0] for *_, relation in words),
    )


def _reach(heads: Int[np.ndarray, " words"]) -> bool:
    """Whether every word's heads lead to the root."""
    above = heads
    for _ in heads:
        above = np.where(above == -1, -1, heads[above])
    return bool((above == -1).all())


def lay_out(
    trees: Sequence[Tree],
    tokenizer: PreTrainedTokenizerBase,
    special_tokens: SpecialTokens,
    slots: int,
) -> LaidTrees:
    """Sentences as an encoder reads them; those with more than S-2 tokens are left out, as a part
    of a tree is none.
    """
    words = pa.array([tree.words for tree in trees], pa.large_list(pa.large_string()))
    tokens, firsts = tokens_of_words(tokenizer, special_tokens, words)
    fitting = np.flatnonzero(tokens.lengths <= slots - 2)
    if not len(fitting):
        raise DataError(
            f"no sentence of the {len(trees)} has at most {slots - 2} tokens: give more slots"
        )
    kept, begins = tokens.take(fitting), firsts.take(fitting)
    kept_trees = tuple(trees[number] for number in fitting.tolist())
    if all(len(tree.heads) == 1 for tree in kept_trees):
        raise DataError(
            f"no word of the sentences that fit {slots} slots has a head: give sentences of two "
            "words or more"
        )
    return LaidTrees(
        kept_trees,
        tuple(
            np.pad(np.cumsum(own >= 0) - 1, 1, constant_values=-1)
            for own in np.split(begins.values, begins.offsets[1:-1])
        ),
        arrange_one(Ragged(kept.values, kept.lengths), special_tokens, slots),
        len(trees) - len(fitting),
    )
