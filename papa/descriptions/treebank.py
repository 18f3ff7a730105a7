"""Sentences with gold trees: words and dependencies as in Universal Dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from papa.errors import DataError
from papa.text.layout import PackedTokens, arrange_one
from papa.text.table import SourceTable
from papa.text.tokens import SpecialTokens, tokens_of_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COLUMNS = ("tokens", "head", "deprel")
"""The columns of a table of trees, with the names of the hub's Universal Dependencies."""
_NO_HEAD = {"_", "None", ""}
"""The heads of what is no word of the tree, such as "don't" beside "do" and "n't"."""


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


def has_trees(columns: Sequence[str]) -> bool:
    """Return whether a table with these columns holds trees."""
    return set(COLUMNS) <= set(columns)


def check_trees(table: SourceTable, *, needs_heads: bool = False) -> None:
    """Raise a DataError unless a table holds trees, and with ``needs_heads`` a head for every word,
    as CoNLL-U files do: in tables of the hub, what is no word of the tree has none.
    """
    if not has_trees(table.rows.column_names):
        raise DataError(
            f"{table.origin} has no trees (columns: {', '.join(table.rows.column_names)}): give a "
            f".conllu file, or a table with the columns {', '.join(COLUMNS)}"
        )
    for number, heads in enumerate(table.column("head").to_pylist() if needs_heads else (), 1):
        if _NO_HEAD & {*heads}:
            raise DataError(
                f"{table.origin}: sentence {number} has a word without a head: give the number of "
                "its head, 0 for the root"
            )


def trees_of(table: SourceTable) -> list[Tree]:
    """Return the trees of a table with the columns ``tokens``, ``head`` and ``deprel``: heads are
    numbers of words from 1, 0 for the root, as in CoNLL-U.
    """
    check_trees(table)
    sentences = zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    return [
        _tree(columns, f"{table.origin}: sentence {number}")
        for number, columns in enumerate(sentences, 1)
    ]


def _tree(columns: Sequence[Any], where: str) -> Tree:
    """Return the tree of one sentence from its lists of words, heads and relations, which may be
    anything that a file holds; messages name the sentence ``where``.
    """
    try:
        words = [
            (str(token), int(head), str(relation))
            for token, head, relation in zip(*columns, strict=True)
            if str(head) not in _NO_HEAD
        ]
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: {error}: give lists of one length in {', '.join(COLUMNS)}, and as heads the "
            "numbers of words, 0 for the root"
        ) from None
    heads = np.array([head - 1 for _, head, _ in words], dtype=np.int64)
    roots = int((heads == -1).sum())
    if roots != 1 or heads.min() < -1 or heads.max() >= len(heads):
        raise DataError(
            f"{where} is no tree ({roots} roots among {len(heads)} words): give every word one "
            "head from 1 on, and the root 0"
        )
    return Tree(
        words=tuple(word for word, _, _ in words),
        heads=heads,
        relations=tuple(relation.partition(":")[0] for _, _, relation in words),
    )


def lay_out(
    trees: Sequence[Tree],
    tokenizer: PreTrainedTokenizerBase,
    special_tokens: SpecialTokens,
    slots: int,
) -> LaidTrees:
    """Lay out sentences as an encoder reads them; those with more than S-2 tokens are left out."""
    tokens, word_numbers = tokens_of_words(
        tokenizer, special_tokens, [tree.words for tree in trees]
    )
    fitting = [number for number, ids in enumerate(tokens) if len(ids) <= slots - 2]
    if not fitting:
        raise DataError(
            f"none of the {len(trees)} sentences has {slots - 2} tokens or fewer: raise slots, "
            f"now {slots}"
        )
    return LaidTrees(
        trees=tuple(trees[number] for number in fitting),
        words=tuple(np.array([-1, *word_numbers[number], -1]) for number in fitting),
        tokens=arrange_one([tokens[number] for number in fitting], special_tokens, slots),
        dropped=len(trees) - len(fitting),
    )
