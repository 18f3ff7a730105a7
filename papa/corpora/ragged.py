"""Rows of different lengths as flat arrays: offsets and positions without a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain

import numpy as np
from jaxtyping import Bool, Int, Int64, Shaped

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


def count_by_row(
    chosen: Bool[np.ndarray, " values"], offsets: Int[np.ndarray, " rows_and_one"]
) -> Rows:
    """How many values of each row are chosen."""
    return np.diff(offsets_of(chosen)[offsets])


@dataclass(frozen=True)
class Ragged:
    """Rows of integers, back to back."""

    values: Values
    lengths: Rows

    @classmethod
    def of(cls, rows: Sequence[Iterable[int]], dtype: type = np.int32) -> Ragged:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))  # type: ignore[arg-type]
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths)

    @property
    def offsets(self) -> Int64[np.ndarray, " rows_and_one"]:
        """Where each row starts; the last is the number of values."""
        return offsets_of(self.lengths)

    @property
    def positions(self) -> Values:
        """Each value's position in its row."""
        return positions_in_rows(self.lengths)

    def where(self, kept: Bool[np.ndarray, " values"]) -> Ragged:
        """The values at which ``kept`` is true, in the same rows."""
        return Ragged(self.values[kept], count_by_row(kept, self.offsets))

    def cut(self, limit: int) -> Ragged:
        """At most ``limit`` values of each row."""
        return self.where(self.positions < limit)

    def take(self, rows: Int[np.ndarray, " n"]) -> Ragged:
        """The rows with these numbers, in this order, repeats allowed."""
        lengths = self.lengths[rows]
        return Ragged(self.values[positions_in_spans(self.offsets[rows], lengths)], lengths)

    def joined(self, groups: Int[np.ndarray, " groups"]) -> Ragged:
        """Neighbouring rows joined: row r of the result holds the next ``groups[r]`` rows."""
        return Ragged(self.values, np.diff(self.offsets[offsets_of(groups)]))


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

    @cached_property
    def offsets(self) -> Int64[np.ndarray, " rows_and_one"]:
        """Where each row's tokens start; the last is the number of tokens."""
        return offsets_of(self.lengths)

    @property
    def is_first_text(self) -> Bool[np.ndarray, " tokens"]:
        """Whether a token is text of its row's first (or only) text; [CLS] comes before it."""
        positions = positions_in_rows(self.lengths)
        return (positions > 0) & (positions <= np.repeat(self.first_lengths, self.lengths))

    def spread(
        self, values: Shaped[np.ndarray, " text_tokens"], fill: int
    ) -> Shaped[np.ndarray, " tokens"]:
        """``values`` of the first text's tokens among all tokens, ``fill`` at the others."""
        spread = np.full(len(self.input_ids), fill, dtype=values.dtype)
        spread[self.is_first_text] = values
        return spread

    def take(self, rows: Int[np.ndarray, " n"]) -> PackedTokens:
        """The rows with these numbers, in this order."""
        lengths = self.lengths[rows]
        tokens = positions_in_spans(self.offsets[rows], lengths)
        return PackedTokens(
            input_ids=self.input_ids[tokens],
            slot_ids=self.slot_ids[tokens],
            token_type_ids=self.token_type_ids[tokens],
            lengths=lengths,
            first_lengths=self.first_lengths[rows],
        )


def concatenated(parts: Sequence[PackedTokens]) -> PackedTokens:
    """The rows of all parts; the part itself where it is the only one."""
    if len(parts) == 1:
        return parts[0]
    columns = {
        field.name: [getattr(part, field.name) for part in parts] for field in fields(PackedTokens)
    }
    return replace(parts[0], **{name: np.concatenate(column) for name, column in columns.items()})
