"""Rows of different lengths as flat arrays: offsets and positions without a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain

import numpy as np
from jaxtyping import Int, Int64, Shaped

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
    """Rows laid out in slots: their real tokens in slot order, back to back.

    Attributes:
        slot_ids: the slot 0..S-1 of each token, ascending in each row.
        lengths: real tokens of each row, special ones included.
        first_lengths: text tokens of each row's first (or only) text.
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
        """Where each row's tokens start; the last is the number of tokens."""
        return offsets_of(self.lengths)

    def take(self, rows: Int[np.ndarray, " n"]) -> PackedTokens:
        """The rows with these numbers, in this order."""
        lengths = self.lengths[rows]
        tokens = positions_in_spans(self.offsets[rows], lengths)
        per_token = (self.input_ids, self.slot_ids, self.token_type_ids)
        ids, slots, types = (values[tokens] for values in per_token)
        return PackedTokens(ids, slots, types, lengths, self.first_lengths[rows])


def concatenated(parts: Sequence[PackedTokens]) -> PackedTokens:
    """The rows of all parts; the part itself where it is the only one."""
    if len(parts) == 1:
        return parts[0]
    names = (field.name for field in fields(PackedTokens))
    return PackedTokens(*(np.concatenate([getattr(one, name) for one in parts]) for name in names))
