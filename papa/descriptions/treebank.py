"""Sentences with gold trees, in the words and dependencies of Universal Dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from papa.errors import DataError
from papa.text.batches import MicroBatch, rows_of_like_length
from papa.text.layout import PackedTokens, arrange_one
from papa.text.table import SourceTable, format_of, read_file
from papa.text.tokens import SpecialTokens, tokens_of_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COLUMNS = ("tokens", "head", "deprel")
"""Of a table of trees, as the hub's Universal Dependencies name them."""
_NONE = {"_", "None", ""}
"""What has no head is no word of the tree, such as "don't" beside "do" and "n't"."""


@dataclass(frozen=True)
class Tree:
    """A sentence's gold tree: the number of each word's head, from 0, -1 for the root; and each
    word's relation to its head, without subtypes.
    """

    words: tuple[str, ...]
    heads: Int[np.ndarray, " words"]
    relations: tuple[str, ...]


@dataclass(frozen=True)
class LaidTrees:
    """Sentences in an encoder's slots; ``words`` are the numbers of each token's word, -1 for
    special tokens; ``dropped`` is how many do not fit.
    """

    trees: tuple[Tree, ...]
    words: tuple[Int[np.ndarray, " _"], ...]
    tokens: PackedTokens
    dropped: int

    def batches(self, batch_tokens: int) -> Iterator[MicroBatch]:
        """Micro-batches of sentences of like length; their rows are numbers of sentences."""
        tokens = self.tokens
        for rows in rows_of_like_length(tokens.first_lengths, tokens.lengths, batch_tokens):
            yield MicroBatch.from_tokens(rows, tokens.take(rows))


def has_trees(columns: Sequence[str]) -> bool:
    """Whether a table with these columns holds trees."""
    return set(COLUMNS) <= set(columns)


def read_trees(path: Path) -> list[Tree]:
    """The trees of a file: CoNLL-U by its name, else a table as of ``trees_of``."""
    table = read_file(path, format_of(path) or "text")
    if format_of(path) == "conllu":
        # Of the hub's tables, these are ranges such as "don't"; here each is a word.
        for number, heads in enumerate(table.column("head").to_pylist(), 1):
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
    rows = zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    return [_tree(row, f"{table.origin}: sentence {n}") for n, row in enumerate(rows, 1)]


def _tree(row: Sequence[Any], where: str) -> Tree:
    try:
        words = [word for word in zip(*row, strict=True) if str(word[1]) not in _NONE]
        heads = np.array([int(head) - 1 for _, head, _ in words], dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: {error}: give lists of one length in {', '.join(COLUMNS)}, and as heads the "
            "numbers of words, 0 for the root"
        ) from None
    roots, above = int((heads == -1).sum()), heads
    if roots == 1 and heads.min() >= -1 and heads.max() < len(heads):
        for _ in heads:
            above = np.where(above == -1, -1, heads[above])
    if roots != 1 or (above != -1).any():
        raise DataError(
            f"{where} is no tree ({roots} roots among {len(heads)} words): give every word one "
            "head from 1 on, and the root 0"
        )
    relations = tuple(str(relation).partition(":")[0] for *_, relation in words)
    return Tree(tuple(str(word) for word, *_ in words), heads, relations)


def lay_out(
    trees: Sequence[Tree],
    tokenizer: PreTrainedTokenizerBase,
    special_tokens: SpecialTokens,
    slots: int,
) -> LaidTrees:
    """Sentences as an encoder reads them; those with more than S-2 tokens are left out."""
    tokens, words = tokens_of_words(tokenizer, special_tokens, [tree.words for tree in trees])
    fitting = [number for number, ids in enumerate(tokens) if len(ids) <= slots - 2]
    if not fitting:
        raise DataError(
            f"no sentence of the {len(trees)} has at most {slots - 2} tokens: give more slots"
        )
    laid = arrange_one([tokens[number] for number in fitting], special_tokens, slots)
    of_tokens = tuple(np.array([-1, *words[number], -1]) for number in fitting)
    kept = tuple(trees[number] for number in fitting)
    return LaidTrees(kept, of_tokens, laid, dropped=len(trees) - len(fitting))
