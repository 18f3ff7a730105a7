"""The fixed arrangement of an input in S slots (paper, App. A), as real tokens alone.

One text::

    slot    0     1 … k    …      S-1
          [CLS]  t1 … tk  [PAD]  [SEP]

Two texts, of which each keeps to its half (two separators where the tokenizer uses two)::

    slot    0     1 … k    …    S/2    S/2+1 …    …     S-1
          [CLS]  a1 … ak  [PAD] [SEP]  b1 … bl   [PAD]  [SEP]

Padding is never stored: each token has the number of its slot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Int, Int8

from papa.corpora.ragged import PackedTokens, Ragged, positions_in_rows
from papa.corpora.tokens import IGNORED, NOTHING, Framing
from papa.errors import DataError, EncoderError
from papa.spec import LayoutSpec, TaskKind


def text_capacity(layout: LayoutSpec, kind: TaskKind, slots: int) -> int:
    """How many tokens of a single text are kept: S-2 (paper), or S/2-1 where the authors' code
    halves single texts of sequence tasks, as if each were the first of a pair; S in a decoder, its
    first token among them.
    """
    if kind == "causal":
        return slots
    halved = layout.one_text_truncation == "half" and kind == "text"
    return slots // 2 - 1 if halved else slots - 2


def pair_capacity(framing: Framing, slots: int) -> tuple[int, int]:
    """How many tokens of each of two texts are kept."""
    second = slots // 2 - framing.between - 1
    if second < 1:
        raise EncoderError(
            f"slots {slots} leave no room for a second text beside {framing.between + 1} "
            f"separators: set the task's slots to {2 * (framing.between + 2)} or more"
        )
    return slots // 2 - 1, second


def arrange_one(texts: Ragged, framing: Framing, slots: int) -> PackedTokens:
    """Lay out one text per row; ``texts`` holds at most S-2 token ids per row."""
    nothing = Ragged(np.zeros(0, np.int32), np.zeros_like(texts.lengths))
    arranged = _arrange(texts, nothing, 0, framing, slots)
    # One text is one segment, to its last [SEP].
    return replace(
        arranged, token_type_ids=np.full_like(arranged.token_type_ids, framing.segments[0])
    )


def arrange_pair(
    first: Ragged,
    second: Ragged,
    framing: Framing,
    segment_ids: Literal["follow", "stay"],
    slots: int,
) -> PackedTokens:
    """Lay out two texts per row, of which each keeps what ``pair_capacity`` says.

    Segment ids either move with their tokens (``follow``), or each slot has the one that the
    tokenizer gives to the position of that number (``stay``), as it writes
    ``[CLS] a [SEP] b [SEP]`` without gaps, shortens uncut texts only until they fit S tokens
    together, and pads with 0.
    """
    limits = pair_capacity(framing, slots)
    arranged = _arrange(
        first.cut(limits[0]), second.cut(limits[1]), framing.between, framing, slots
    )
    if segment_ids == "follow":
        return arranged
    lengths = _shortened(first.lengths, second.lengths, slots - framing.between - 2)
    first_lengths, second_lengths = (np.repeat(of_rows, arranged.lengths) for of_rows in lengths)
    segments = _segments(arranged.slot_ids, first_lengths, second_lengths, framing.between, framing)
    return replace(arranged, token_type_ids=segments)


def arrange_causal(
    texts: Ragged, framing: Framing, slots: int
) -> tuple[PackedTokens, Int[np.ndarray, " tokens"]]:
    """Lay out one text per row as a decoder reads it, from position 0 on; and the token that
    follows each (-100 after the last).
    """
    begins = int(framing.cls != NOTHING)
    lengths = texts.lengths + begins
    if (lengths < 2).any():
        row = int(np.flatnonzero(lengths < 2)[0])
        raise DataError(
            f"text {row + 1} has {lengths[row]} token, and a decoder is scored by the next one, so "
            "it needs two: remove it"
        )
    positions = positions_in_rows(lengths)
    ids = np.full(len(positions), framing.cls, np.int32)
    ids[positions >= begins] = texts.values
    whole = Ragged(ids, lengths).cut(slots)
    follow = np.append(whole.values[1:], IGNORED).astype(np.int64)
    follow[whole.offsets[1:] - 1] = IGNORED
    arranged = PackedTokens(
        input_ids=whole.values,
        slot_ids=whole.positions.astype(np.int32),
        token_type_ids=np.zeros(len(whole.values), np.int8),
        lengths=whole.lengths,
        first_lengths=whole.lengths,
    )
    return arranged, follow


def _shortened(
    first: Int[np.ndarray, " rows"], second: Int[np.ndarray, " rows"], limit: int
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """The lengths of two texts once the longer one lost token by token until ``limit`` are left; of
    equally long ones the second, as in the Python tokenizers that the authors' commands use.
    """
    left = np.minimum(first, np.maximum(limit - second, (limit + 1) // 2))
    return left, np.minimum(second, limit - left)


def _segments(
    positions: Int[np.ndarray, " tokens"],
    first_lengths: Int[np.ndarray, " tokens"],
    second_lengths: Int[np.ndarray, " tokens"],
    between: int,
    framing: Framing,
) -> Int8[np.ndarray, " tokens"]:
    """The tokenizer's segment ids at positions of its own arrangement without gaps, 0 beyond its
    end; lengths are those of the texts of each token's row.
    """
    start_of_second = first_lengths + between + 1
    inside = np.where(positions < start_of_second, framing.segments[1], framing.segments[2])
    segments = np.where(positions <= first_lengths, framing.segments[0], inside)
    return np.where(positions > start_of_second + second_lengths, 0, segments).astype(np.int8)


def _arrange(
    first: Ragged, second: Ragged, between: int, framing: Framing, slots: int
) -> PackedTokens:
    lengths = first.lengths + second.lengths + between + 2
    positions = positions_in_rows(lengths)  # in the tokenizer's own arrangement, without gaps
    end_of_first = np.repeat(first.lengths, lengths)  # the position of the first text's last token
    start_of_second = end_of_first + between + 1
    last = np.repeat(lengths - 1, lengths)

    input_ids = np.full(len(positions), framing.sep, np.int32)
    input_ids[positions == 0] = framing.cls
    input_ids[(positions >= 1) & (positions <= end_of_first)] = first.values
    input_ids[(positions >= start_of_second) & (positions < last)] = second.values

    slot_ids = np.where(
        positions <= end_of_first, positions, slots // 2 + positions - end_of_first - 1
    )
    slot_ids = np.where(positions == last, slots - 1, slot_ids)

    second_lengths = np.repeat(second.lengths, lengths)
    return PackedTokens(
        input_ids=input_ids,
        slot_ids=slot_ids.astype(np.int32),
        token_type_ids=_segments(positions, end_of_first, second_lengths, between, framing),
        lengths=lengths,
        first_lengths=first.lengths,
    )
