"""Which tokens of some rows a probe sees, and where each belongs among packed features.

What is kept grows by a few bytes a row; a token costs the two or four bytes of its slot, and its label where tokens
have labels.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.corpora.batches import CompactBatch
from papa.corpora.split import TokenizedSplit
from papa.corpora.tokens import IGNORED
from papa.probes.packed import PackedFeatures


class TokenPlaces:
    """The places of wanted tokens: the labelled ones, or all where rows have the labels.

    Args:
        split: the tokenised rows.
        rows: row numbers, ascending.

    Attributes:
        offsets: [rows + 1], where each row's wanted tokens begin.
    """

    def __init__(self, split: TokenizedSplit, rows: np.ndarray) -> None:
        self.split, self.rows = split, rows
        counts = split.lengths[rows]
        if split.label_per_token:
            before = np.concatenate([[0], np.cumsum(split.labels != IGNORED)])
            counts = before[split.offsets[rows + 1]] - before[split.offsets[rows]]
        self.offsets = np.concatenate([[0], np.cumsum(counts)])

    @property
    def tokens(self) -> int:
        """How many there are."""
        return int(self.offsets[-1])

    def spans(self, batch: CompactBatch) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
        """Where the wanted tokens of each of a batch's rows begin and end."""
        index = np.searchsorted(self.rows, batch.rows.numpy())
        return self.offsets[index], self.offsets[index + 1]

    def wanted(self, batch: CompactBatch) -> Bool[Tensor, " tokens"] | None:
        """Which of a batch's real tokens are wanted, row by row; None: all."""
        if not self.split.label_per_token:
            return None
        index = np.searchsorted(self.rows, batch.rows.numpy())
        return torch.from_numpy(self._labels(index) != IGNORED)

    def packed(self, values: Float[Tensor, "tokens layers width"]) -> PackedFeatures:
        """The features with their slots and labels."""
        split = self.split
        whole = len(self.rows) == len(split)
        slots = split.slot_ids if whole else split.tokens(self.rows).slots
        if split.label_per_token:
            labels = split.labels if whole else self._labels(np.arange(len(self.rows)))
            kept = labels != IGNORED
            slots, labels = slots[kept], labels[kept]
        else:
            labels = split.labels[self.rows]
        return PackedFeatures(
            values=values,
            offsets=torch.from_numpy(self.offsets),
            # A copy: a mapped file cannot be written to, and PyTorch knows no such tensor.
            slots=torch.tensor(slots).to(values.device),
            labels=torch.from_numpy(labels).to(values.device),
            token_labels=split.label_per_token,
        )

    def _labels(self, index: np.ndarray) -> np.ndarray:
        """The labels of all real tokens of some of the rows."""
        rows = self.rows[index]
        return self.split.labels[inside(self.split.offsets[rows], self.split.offsets[rows + 1])]


def inside(starts: Int[np.ndarray, " spans"], ends: Int[np.ndarray, " spans"]) -> Int[np.ndarray, " found"]:
    """start, start + 1, …, end - 1 of each span, one after another."""
    lengths = ends - starts
    return np.arange(lengths.sum()) + np.repeat(ends - lengths.cumsum(), lengths)
