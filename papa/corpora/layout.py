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

from dataclasses import dataclass

import numpy as np

from papa.corpora.ragged import Ragged
from papa.corpora.specials import Specials
from papa.errors import EncoderError
from papa.spec import LayoutSpec


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


def room(layout: LayoutSpec, slots: int) -> int:
    """How many tokens of a single text are kept: S-2 (paper) or S/2-1 (the authors' code)."""
    return slots - 2 if layout.one_text_truncation == "full" else slots // 2 - 1


def room_in_pair(specials: Specials, slots: int) -> tuple[int, int]:
    """How many tokens of each of two texts are kept.

    Raises:
        EncoderError: no token of the second text has room.
    """
    second = slots // 2 - specials.between - 1
    if second < 1:
        raise EncoderError(
            f"slots {slots} leave no room for a second text beside {specials.between + 1} separators: "
            f"set the task's slots to {2 * (specials.between + 2)} or more"
        )
    return slots // 2 - 1, second


def arrange_one(texts: Ragged, specials: Specials, slots: int) -> Arrangement:
    """Lay out one text a row; ``texts`` holds at most S-2 token ids a row."""
    nothing = Ragged(np.zeros(0, np.int32), np.zeros_like(texts.lengths))
    return _arrange(texts, nothing, 0, specials, slots, stay=False)


def arrange_pair(first: Ragged, second: Ragged, specials: Specials, layout: LayoutSpec, slots: int) -> Arrangement:
    """Lay out two texts a row; each holds at most what ``room_in_pair`` says.

    Segment ids either move with their tokens (``follow``) or stay at the places where the tokenizer puts them
    when it writes ``[CLS] a [SEP] b [SEP]`` without gaps and pads with 0 (``stay``).
    """
    return _arrange(first, second, specials.between, specials, slots, stay=layout.segment_ids == "stay")


def _arrange(first: Ragged, second: Ragged, between: int, specials: Specials, slots: int, *, stay: bool) -> Arrangement:
    lengths = first.lengths + second.lengths + between + 2
    rows = Ragged(np.zeros(int(lengths.sum()), np.int32), lengths)
    place = rows.places  # in the tokenizer's own arrangement, without gaps
    end_of_first = np.repeat(first.lengths, lengths)  # the place of the first text's last token
    start_of_second = end_of_first + between + 1
    last = np.repeat(lengths - 1, lengths)

    is_first = (place >= 1) & (place <= end_of_first)
    is_second = (place >= start_of_second) & (place < last)
    input_ids = rows.values
    input_ids[:] = specials.sep
    input_ids[place == 0] = specials.cls
    input_ids[is_first] = first.values
    input_ids[is_second] = second.values

    slot = np.where(place <= end_of_first, place, slots // 2 + place - end_of_first - 1)
    slot = np.where(place == last, slots - 1, slot)

    # At which place of its own arrangement the tokenizer would have given this token's slot a segment.
    seen_at = slot if stay else place
    segment = np.where(
        seen_at <= end_of_first,
        specials.segments[0],
        np.where(seen_at < start_of_second, specials.segments[1], specials.segments[2]),
    )
    if between == 0:  # One text is one segment, to its last [SEP].
        segment = np.full_like(segment, specials.segments[0])
    return Arrangement(
        input_ids=input_ids,
        slots=slot.astype(np.int32),
        token_type_ids=np.where(seen_at > last, 0, segment).astype(np.int8),
        lengths=lengths,
        first_lengths=first.lengths,
        text_tokens=is_first,
    )
