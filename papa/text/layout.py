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
from typing import Literal

import numpy as np
from jaxtyping import Int, Int64, Shaped

from papa.errors import DataError, EncoderError
from papa.spec import LayoutSpec, TaskKind
from papa.text.tokens import IGNORED, NOTHING, SpecialTokens

Texts = Sequence[Sequence[int]]
Rows = Int[np.ndarray, " rows"]
Values = Int[np.ndarray, " values"]


def offsets_of(lengths: Shaped[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows_and_one"]:
    """Where each row starts; the last is the number of values."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def positions_in_spans(starts: Rows, lengths: Rows) -> Values:
    """start, start + 1, …, start + length - 1 of each span, one after another."""
    return np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)


def positions_in_rows(lengths: Rows) -> Values:
    """0, 1, …, length - 1 of each row, one after another."""
    return positions_in_spans(np.zeros_like(lengths), lengths)


@dataclass(frozen=True)
class PackedTokens:
    """Rows laid out in slots: their real tokens in slot order, back to back; ``lengths`` count
    special tokens, ``first_lengths`` the text tokens of each row's first (or only) text.
    """

    input_ids: Int[np.ndarray, " tokens"]
    slot_ids: Int[np.ndarray, " tokens"]
    token_type_ids: Int[np.ndarray, " tokens"]
    lengths: Rows
    first_lengths: Rows

    @classmethod
    def of(cls, rows: Iterable[tuple[list[int], list[int], list[int], int]]) -> PackedTokens:
        """Rows of token ids, their slots and segments, and of how many tokens the first text is."""
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
        """The rows with these numbers, in this order."""
        lengths = self.lengths[rows]
        tokens = positions_in_spans(self.offsets[rows], lengths)
        per_token = (self.input_ids, self.slot_ids, self.token_type_ids)
        ids, slots, types = (values[tokens] for values in per_token)
        return PackedTokens(ids, slots, types, lengths, self.first_lengths[rows])


def text_capacity(layout: LayoutSpec, kind: TaskKind, slots: int) -> int:
    """How many tokens of one text are kept: S-2 (paper), S/2-1 (authors' code), S in a decoder."""
    if kind == "causal":
        return slots
    halved = layout.one_text_truncation == "half" and kind == "text"
    return slots // 2 - 1 if halved else slots - 2


def pair_capacity(framing: SpecialTokens, slots: int) -> tuple[int, int]:
    """How many tokens of each of two texts are kept."""
    least = 2 * (framing.between + 2)
    if slots < least:
        raise EncoderError(f"slots {slots} leave no room for a second text: set them to {least}")
    return slots // 2 - 1, slots // 2 - framing.between - 1


def arrange_one(texts: Texts, framing: SpecialTokens, slots: int) -> PackedTokens:
    """Lay out one text per row, of at most S-2 tokens; it is one segment, to its last [SEP]."""
    return PackedTokens.of(
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
    """Lay out two texts per row, of which each keeps what ``pair_capacity`` says.

    Segment ids move with their tokens (``follow``), or are those of the tokenizer at the position
    of the slot's number (``stay``): texts without gaps, cut only until they fit S tokens, then 0.
    """
    limits, half, between = pair_capacity(framing, slots), slots // 2, framing.between
    of_first, inside, of_second = framing.segments

    def segments(a: int, b: int) -> list[int]:
        return [of_first] * (a + 1) + [inside] * between + [of_second] * (b + 1)

    rows = []
    for uncut_a, uncut_b in zip(first, second, strict=True):
        a, b = uncut_a[: limits[0]], uncut_b[: limits[1]]
        ids = [framing.cls, *a, *[framing.sep] * between, *b, framing.sep]
        slot_ids = [*range(len(a) + 1), *range(half, half + between + len(b)), slots - 1]
        types = segments(len(a), len(b))
        if segment_ids == "stay":
            # The longer text loses token by token; of equally long ones the second, as in the
            # Python tokenizers that the authors' commands use.
            room = slots - between - 2
            left = min(len(uncut_a), max(room - len(uncut_b), (room + 1) // 2))
            own = [*segments(left, min(len(uncut_b), room - left)), *[0] * slots]
            types = [own[slot] for slot in slot_ids]
        rows.append((ids, slot_ids, types, len(a)))
    return PackedTokens.of(rows)


def arrange_causal(
    texts: Texts, framing: SpecialTokens, slots: int
) -> tuple[PackedTokens, Int64[np.ndarray, " tokens"]]:
    """One text per row from position 0 on, and the token that follows each, or -100."""
    begins = [] if framing.cls == NOTHING else [framing.cls]
    whole = [[*begins, *text][:slots] for text in texts]
    for row, ids in enumerate(whole, start=1):
        if len(ids) < 2:
            raise DataError(f"text {row} has {len(ids)} token, and a decoder needs two: remove it")
    arranged = PackedTokens.of((ids, [*range(len(ids))], [0] * len(ids), len(ids)) for ids in whole)
    follow = [token for ids in whole for token in (*ids[1:], IGNORED)]
    return arranged, np.array(follow, np.int64)


def special_slots(kind: TaskKind, slots: int, *, double_separator: bool = False) -> tuple[int, ...]:
    """The slots of [CLS] (first) and [SEP], two between texts in RoBERTa's; a decoder's first."""
    if kind == "causal":
        return (0,)
    if kind != "pair":
        return 0, slots - 1
    middle = (slots // 2, slots // 2 + 1) if double_separator else (slots // 2,)
    return 0, *middle, slots - 1
