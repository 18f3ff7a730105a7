"""Rows of different lengths as one flat array: no loop over tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """Rows of integers, back to back.

    Attributes:
        values: [tokens], the rows one after another.
        lengths: [rows], how many values each row has.
    """

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Iterable[int]], dtype: type = np.int32) -> Ragged:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))  # type: ignore[arg-type]
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths)

    @property
    def offsets(self) -> np.ndarray:
        """[rows + 1], where each row starts; the last is the number of values."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def places(self) -> np.ndarray:
        """[tokens], each value's place in its row."""
        return np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths)

    def where(self, kept: np.ndarray) -> Ragged:
        """The values at which ``kept`` [tokens] is true, in the same rows."""
        counts = np.concatenate([[0], np.cumsum(kept)])[self.offsets]
        return Ragged(self.values[kept], np.diff(counts))

    def cut(self, limit: int) -> Ragged:
        """At most ``limit`` values of each row."""
        return self.where(self.places < limit)

    def take(self, rows: np.ndarray) -> Ragged:
        """The rows with these numbers, in this order, repeats allowed."""
        lengths = self.lengths[rows]
        starts = np.repeat(self.offsets[rows], lengths)
        inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return Ragged(self.values[starts + inside], lengths)

    def joined(self, groups: np.ndarray) -> Ragged:
        """Neighbouring rows joined: row r of the result holds the next ``groups[r]`` rows."""
        counts = np.concatenate([[0], np.cumsum(groups)])
        return Ragged(self.values, np.diff(self.offsets[counts]))
