"""The fixed arrangement of an input in S slots (paper, App. A), as real tokens alone.

One text::

    slot    0     1 … k    …      S-1
          [CLS]  t1 … tk  [PAD]  [SEP]

Two texts, of which each keeps to its half (two separators where the tokenizer uses two)::

    slot    0     1 … k    …    S/2    S/2+1 …    …     S-1
          [CLS]  a1 … ak  [PAD] [SEP]  b1 … bl   [PAD]  [SEP]

Padding is never stored: a token's slot says where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from papa.corpora.ragged import Ragged
from papa.corpora.tokens import SpecialTokens
from papa.errors import EncoderError
from papa.spec import LayoutSpec, TaskKind


@dataclass(frozen=True)
class Arrangement:
    """Rows laid out: their real tokens in slot order, back to back.

    Attributes:
        input_ids: int32 [tokens].
        slots: int32 [tokens], ascending in each row.
        token_type_ids: int8 [tokens].
        lengths: int64 [rows], real tokens of each row, special ones included.
        first_lengths: int64 [rows], text tokens of the first (or only) text.
        text_tokens: bool [tokens], whether a token is text of the first (or only) text.
    """

    input_ids: np.ndarray
    slots: np.ndarray
    token_type_ids: np.ndarray
    lengths: np.ndarray
    first_lengths: np.ndarray
    text_tokens: np.ndarray

    def spread(self, values: np.ndarray, elsewhere: int) -> np.ndarray:
        """``values`` of the text tokens at their places among all tokens, ``elsewhere`` at the others."""
        spread = np.full(len(self.input_ids), elsewhere, dtype=values.dtype)
        spread[self.text_tokens] = values
        return spread


def text_capacity(layout: LayoutSpec, kind: TaskKind, slots: int) -> int:
    """How many tokens of a single text are kept: S-2 (paper), or S/2-1 where the authors' code halves.

    Their code halves the single texts of sequence tasks alone: it moves texts into slots as if each were the first of
    a pair. Tasks with a label a token (``words``, ``mlm``) fill all slots under either switch.
    """
    halved = layout.one_text_truncation == "half" and kind == "text"
    return slots // 2 - 1 if halved else slots - 2


def pair_capacity(special_tokens: SpecialTokens, slots: int) -> tuple[int, int]:
    """How many tokens of each of two texts are kept.

    Raises:
        EncoderError: no token of the second text fits.
    """
    second = slots // 2 - special_tokens.between - 1
    if second < 1:
        raise EncoderError(
            f"slots {slots} leave no room for a second text beside {special_tokens.between + 1} separators: "
            f"set the task's slots to {2 * (special_tokens.between + 2)} or more"
        )
    return slots // 2 - 1, second


def arrange_one(texts: Ragged, special_tokens: SpecialTokens, slots: int) -> Arrangement:
    """Lay out one text a row; ``texts`` holds at most S-2 token ids a row."""
    nothing = Ragged(np.zeros(0, np.int32), np.zeros_like(texts.lengths))
    arranged = _arrange(texts, nothing, 0, special_tokens, slots)
    # One text is one segment, to its last [SEP].
    return replace(arranged, token_type_ids=np.full_like(arranged.token_type_ids, special_tokens.segments[0]))


def arrange_pair(
    first: Ragged, second: Ragged, special_tokens: SpecialTokens, layout: LayoutSpec, slots: int
) -> Arrangement:
    """Lay out two texts a row, of which each keeps what ``pair_capacity`` says.

    Segment ids either move with their tokens (``follow``), or each slot has the one that the tokenizer gives to the
    place of that number (``stay``), as it writes ``[CLS] a [SEP] b [SEP]`` without gaps, shortens uncut texts only
    until they fit S tokens together, and pads with 0.
    """
    limits = pair_capacity(special_tokens, slots)
    arranged = _arrange(first.cut(limits[0]), second.cut(limits[1]), special_tokens.between, special_tokens, slots)
    if layout.segment_ids == "follow":
        return arranged
    lengths = _shortened(first.lengths, second.lengths, slots - special_tokens.between - 2)
    first_lengths, second_lengths = (np.repeat(one, arranged.lengths) for one in lengths)
    segments = _segments(arranged.slots, first_lengths, second_lengths, special_tokens.between, special_tokens)
    return replace(arranged, token_type_ids=segments)


def _shortened(first: np.ndarray, second: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The lengths [rows] of two texts once the longer one lost token by token until ``limit`` are left.

    Of equally long texts the second one loses a token, as in the Python tokenizers that the authors' commands use.
    """
    left = np.minimum(first, np.maximum(limit - second, (limit + 1) // 2))
    return left, np.minimum(second, limit - left)


def _segments(
    place: np.ndarray,
    first_lengths: np.ndarray,
    second_lengths: np.ndarray,
    between: int,
    special_tokens: SpecialTokens,
) -> np.ndarray:
    """The tokenizer's segment ids int8 [tokens] at some places of its own arrangement, 0 beyond its end.

    Args:
        place: int [tokens], places in the arrangement without gaps.
        first_lengths, second_lengths: int64 [tokens], the lengths of the texts of each token's row.
    """
    start_of_second = first_lengths + between + 1
    inside = np.where(place < start_of_second, special_tokens.segments[1], special_tokens.segments[2])
    segments = np.where(place <= first_lengths, special_tokens.segments[0], inside)
    return np.where(place > start_of_second + second_lengths, 0, segments).astype(np.int8)


def _arrange(first: Ragged, second: Ragged, between: int, special_tokens: SpecialTokens, slots: int) -> Arrangement:
    lengths = first.lengths + second.lengths + between + 2
    rows = Ragged(np.zeros(int(lengths.sum()), np.int32), lengths)
    place = rows.places  # in the tokenizer's own arrangement, without gaps
    end_of_first = np.repeat(first.lengths, lengths)  # the place of the first text's last token
    start_of_second = end_of_first + between + 1
    last = np.repeat(lengths - 1, lengths)

    is_first = (place >= 1) & (place <= end_of_first)
    is_second = (place >= start_of_second) & (place < last)
    input_ids = rows.values
    input_ids[:] = special_tokens.sep
    input_ids[place == 0] = special_tokens.cls
    input_ids[is_first] = first.values
    input_ids[is_second] = second.values

    slot = np.where(place <= end_of_first, place, slots // 2 + place - end_of_first - 1)
    slot = np.where(place == last, slots - 1, slot)

    second_lengths = np.repeat(second.lengths, lengths)
    return Arrangement(
        input_ids=input_ids,
        slots=slot.astype(np.int32),
        token_type_ids=_segments(place, end_of_first, second_lengths, between, special_tokens),
        lengths=lengths,
        first_lengths=first.lengths,
        text_tokens=is_first,
    )
