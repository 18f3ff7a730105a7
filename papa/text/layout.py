"""The fixed arrangement of an input in S slots (paper, App. A), as real tokens alone.

    slot    0     1 … k    …    S/2    S/2+1 …    …     S-1
          [CLS]  a1 … ak  [PAD] [SEP]  b1 … bl   [PAD]  [SEP]

One text has no [SEP] between; some tokenizers use two. Padding is never stored: each token has the
number of its slot. Texts are token ids, a list a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from jaxtyping import Int, Int64, Shaped

from papa.errors import DataError, EncoderError
from papa.spec import LayoutSpec, TaskKind, TaskSpec
from papa.text.sources import SPLITS, Split
from papa.text.tokens import (
    IGNORED,
    NO_TOKEN,
    SpecialTokens,
    masked,
    special_tokens_of,
    tokens_of_texts,
    tokens_of_words,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Labels = Shaped[np.ndarray, " rows_or_tokens"]
"""int64 classes or float32 numbers, one a row; words and mlm: int64 a token, -100 not scored."""
Texts = Sequence[Sequence[int]]
RowLengths = Int[np.ndarray, " rows"]


def offsets_of(lengths: Shaped[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows_and_one"]:
    """Return where each row starts, and at the end the number of all values."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def positions_in_spans(
    starts: Int[np.ndarray, " rows"], lengths: RowLengths
) -> Int[np.ndarray, " values"]:
    """Return start, start + 1, …, start + length - 1 of each span, one after another."""
    return np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)


def positions_in_rows(lengths: RowLengths) -> Int[np.ndarray, " values"]:
    """Return 0, 1, …, length - 1 of each row, one after another."""
    return positions_in_spans(np.zeros_like(lengths), lengths)


@dataclass(frozen=True)
class PackedTokens:
    """Rows laid out in slots: their real tokens in slot order, back to back; ``lengths`` count
    special tokens, ``first_lengths`` the text tokens of each row's first (or only) text.
    """

    input_ids: Int[np.ndarray, " tokens"]
    slot_ids: Int[np.ndarray, " tokens"]
    token_type_ids: Int[np.ndarray, " tokens"]
    lengths: RowLengths
    first_lengths: RowLengths

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[list[int], list[int], list[int], int]]) -> PackedTokens:
        """Pack rows of token ids, their slots, their segments, and the first text's length."""
        ids, slots, types, first_lengths = zip(*rows, strict=True)
        return cls(
            np.fromiter(chain.from_iterable(ids), np.int32),
            np.fromiter(chain.from_iterable(slots), np.int32),
            np.fromiter(chain.from_iterable(types), np.int8),
            np.array([len(row) for row in ids]),
            np.array(first_lengths),
        )

    @cached_property
    def offsets(self) -> Int64[np.ndarray, " rows_and_one"]:
        return offsets_of(self.lengths)

    def take(self, rows: Int[np.ndarray, " n"]) -> PackedTokens:
        """Return the rows with these numbers, in this order."""
        lengths = self.lengths[rows]
        tokens = positions_in_spans(self.offsets[rows], lengths)
        per_token = (self.input_ids, self.slot_ids, self.token_type_ids)
        ids, slots, types = (values[tokens] for values in per_token)
        return PackedTokens(ids, slots, types, lengths, self.first_lengths[rows])


def text_capacity(layout: LayoutSpec, kind: TaskKind, slots: int) -> int:
    """Return how many tokens of a text fit: S-2 (paper), S/2-1 (authors' code), S in a decoder."""
    if kind == "causal":
        return slots
    halved = layout.one_text_truncation == "half" and kind == "text"
    return slots // 2 - 1 if halved else slots - 2


def pair_capacity(framing: SpecialTokens, slots: int) -> tuple[int, int]:
    """Return how many tokens of each of two texts fit."""
    fewest_slots = 2 * (framing.between + 2)
    if slots < fewest_slots:
        raise EncoderError(
            f"slots {slots} leave no room for a second text: set slots to {fewest_slots} or more"
        )
    return slots // 2 - 1, slots // 2 - framing.between - 1


def arrange_one(texts: Texts, framing: SpecialTokens, slots: int) -> PackedTokens:
    """Lay out one text per row, of at most S-2 tokens; it is one segment, to its last [SEP]."""
    return PackedTokens.from_rows(
        (
            [framing.cls, *text, framing.sep],
            [*range(len(text) + 1), slots - 1],
            [framing.segments[0]] * (len(text) + 2),
            len(text),
        )
        for text in texts
    )


def arrange_pair(
    first: Texts,
    second: Texts,
    framing: SpecialTokens,
    segment_ids: Literal["follow", "stay"],
    slots: int,
) -> PackedTokens:
    """Lay out two texts per row, each truncated to its ``pair_capacity``.

    Segment ids move with their tokens (``follow``), or are those of the tokenizer at the position
    of the slot's number (``stay``): of texts without gaps, truncated until they fit S tokens, then
    0.
    """
    first_capacity, second_capacity = pair_capacity(framing, slots)
    middle = slots // 2
    between = framing.between
    first_segment, separator_segment, second_segment = framing.segments

    def segments(first_length: int, second_length: int) -> list[int]:
        return [
            *[first_segment] * (first_length + 1),
            *[separator_segment] * between,
            *[second_segment] * (second_length + 1),
        ]

    rows = []
    for text, text_pair in zip(first, second, strict=True):
        a = text[:first_capacity]
        b = text_pair[:second_capacity]
        ids = [framing.cls, *a, *[framing.sep] * between, *b, framing.sep]
        slot_ids = [*range(len(a) + 1), *range(middle, middle + between + len(b)), slots - 1]
        types = segments(len(a), len(b))
        if segment_ids == "stay":
            # The longer text loses token by token; of equally long ones the second, as in the
            # Python tokenizers that the authors' commands use.
            room = slots - between - 2
            first_length = min(len(text), max(room - len(text_pair), (room + 1) // 2))
            second_length = min(len(text_pair), room - first_length)
            # Slots past the last token of the tokenizer's own layout have segment 0.
            segment_of_slot = [*segments(first_length, second_length), *[0] * slots]
            types = [segment_of_slot[slot] for slot in slot_ids]
        rows.append((ids, slot_ids, types, len(a)))
    return PackedTokens.from_rows(rows)


def arrange_causal(
    texts: Texts, framing: SpecialTokens, slots: int, first_row: int
) -> tuple[PackedTokens, Int64[np.ndarray, " tokens"]]:
    """Lay out one text per row from slot 0 on; return also the token after each one, or -100. The
    first text is the split's row ``first_row``.
    """
    start_tokens = [] if framing.cls == NO_TOKEN else [framing.cls]
    token_rows = [[*start_tokens, *text][:slots] for text in texts]
    for row, ids in enumerate(token_rows, start=first_row + 1):
        if len(ids) < 2:
            raise DataError(f"text {row} has {len(ids)} token, and a decoder needs two: remove it")
    arranged = PackedTokens.from_rows(
        (ids, [*range(len(ids))], [0] * len(ids), len(ids)) for ids in token_rows
    )
    next_tokens = [token for ids in token_rows for token in (*ids[1:], IGNORED)]
    return arranged, np.array(next_tokens, np.int64)


def special_slots(kind: TaskKind, slots: int, *, double_separator: bool = False) -> tuple[int, ...]:
    """Return the slots of [CLS] and [SEP]; of a decoder slot 0. RoBERTa's pairs have two [SEP] in
    the middle.
    """
    if kind == "causal":
        return (0,)
    if kind != "pair":
        return 0, slots - 1
    middle = (slots // 2, slots // 2 + 1) if double_separator else (slots // 2,)
    return 0, *middle, slots - 1


@dataclass(frozen=True)
class LaidOutRows:
    """Rows in slots, their labels, and how many texts and labelled words did not fit."""

    tokens: PackedTokens
    labels: Labels
    truncated_texts: int
    truncated_words: int = 0


def lay_out_rows(
    task: TaskSpec,
    layout: LayoutSpec,
    tokenizer: PreTrainedTokenizerBase,
    table: pa.Table,
    split: Split,
    first_row: int,
) -> LaidOutRows:
    """Lay out the rows of ``table``, which starts at row ``first_row`` of its split."""
    special_tokens = special_tokens_of(tokenizer, task.kind)
    slots = (split == "validation" and task.validation_slots) or task.slots
    if task.kind == "pair":
        return _lay_out_pairs(table, special_tokens, tokenizer, layout, slots)
    capacity = text_capacity(layout, task.kind, slots)
    truncated_words = 0
    if task.kind == "words":
        texts, word_numbers = tokens_of_words(tokenizer, special_tokens, table["words"].to_pylist())
        labels, truncated_words = _labels_of_words(
            table["label"].to_pylist(), word_numbers, capacity
        )
    else:
        texts = tokens_of_texts(tokenizer, special_tokens, table["text"].to_pylist())
    truncated_texts = sum(len(text) > capacity for text in texts)
    if task.kind == "causal":
        arranged, next_tokens = arrange_causal(texts, special_tokens, slots, first_row)
        return LaidOutRows(arranged, next_tokens, truncated_texts)
    texts = [text[:capacity] for text in texts]
    if task.kind == "mlm":
        # After truncation, so that every masked token is one that the encoder reads.
        texts, labels = masked(
            texts, special_tokens, task.mask_seed, SPLITS.index(split), first_row
        )
    arranged = arrange_one(texts, special_tokens, slots)
    if task.kind not in ("words", "mlm"):
        return LaidOutRows(arranged, table["label"].to_numpy(), truncated_texts)
    # A label a token, row after row; [CLS] and [SEP] around each row are not scored.
    flat = [label for row in labels for label in (IGNORED, *row, IGNORED)]
    return LaidOutRows(arranged, np.array(flat, np.int64), truncated_texts, truncated_words)


def _lay_out_pairs(
    table: pa.Table,
    special_tokens: SpecialTokens,
    tokenizer: PreTrainedTokenizerBase,
    layout: LayoutSpec,
    slots: int,
) -> LaidOutRows:
    first = tokens_of_texts(tokenizer, special_tokens, table["text"].to_pylist())
    second = tokens_of_texts(tokenizer, special_tokens, table["text_pair"].to_pylist())
    first_capacity, second_capacity = pair_capacity(special_tokens, slots)
    truncated = sum(
        len(text) > first_capacity or len(text_pair) > second_capacity
        for text, text_pair in zip(first, second, strict=True)
    )
    arranged = arrange_pair(first, second, special_tokens, layout.segment_ids, slots)
    return LaidOutRows(arranged, table["label"].to_numpy(), truncated)


def _labels_of_words(
    labels_of_rows: Sequence[Sequence[int]], word_numbers: Sequence[Sequence[int]], capacity: int
) -> tuple[list[list[int]], int]:
    """Return a label a token that fits, a word's at its first token, -100 at its others; and how
    many labelled words do not fit. ``word_numbers`` has the number of each token's word.
    """
    token_labels = []
    truncated_words = 0
    for word_labels, words_of_tokens in zip(labels_of_rows, word_numbers, strict=True):
        words = words_of_tokens[:capacity]
        truncated_words += len(word_labels) - len({*words})
        previous_words = [-1, *words]
        token_labels.append(
            [
                word_labels[word] if word != previous else IGNORED
                for word, previous in zip(words, previous_words, strict=False)
            ]
        )
    return token_labels, truncated_words
