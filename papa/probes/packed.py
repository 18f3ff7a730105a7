"""Packed features: the tokens of many rows one after another, without padding; which of them a probe sees, and how
they are taken from a micro-batch that the encoder has just computed, gradients included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from papa.corpora.batches import MicroBatch
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED


@dataclass(frozen=True)
class PackedFeatures:
    """What a frozen encoder says of the tokens that a probe sees.

    The tokens of row r are ``values[offsets[r] : offsets[r + 1]]``: all its real tokens where a row has one
    label, its labelled tokens where tokens have labels.

    Attributes:
        values: hidden states of the L+1 layers, embeddings first, in any floating dtype; may be
            memory-mapped.
        offsets: where rows begin, ascending from 0 to the number of tokens; always on the CPU.
        slots: the slot 0..S-1 of each token, in any integer dtype.
        labels: one label a row, or one a token: classes as int64, numbers as float32.
        token_labels: whether tokens have labels, not rows.
    """

    values: Float[Tensor, "tokens layers width"]
    offsets: Int[Tensor, " rows_and_one"]
    slots: Int[Tensor, " tokens"]
    labels: Shaped[Tensor, " rows_or_tokens"]
    token_labels: bool

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        """Tokens of each row, on the CPU."""
        return self.offsets.diff()

    def to(self, device: torch.device) -> PackedFeatures:
        """The same features on another device."""
        return replace(self, values=self.values.to(device), slots=self.slots.to(device), labels=self.labels.to(device))

    def select(self, rows: Int[Tensor, " n"]) -> PackedFeatures:
        """A copy of the given rows, in the given order."""
        tokens, _ = self.tokens_of(rows)
        return replace(
            self,
            values=self.values[tokens],
            offsets=torch.cat([torch.zeros(1, dtype=torch.int64), self.lengths[rows].cumsum(0)]),
            slots=self.slots[tokens],
            labels=self.labels[tokens if self.token_labels else rows],
        )

    def tokens_of(self, rows: Int[Tensor, " n"]) -> tuple[Int[Tensor, " found"], Int[Tensor, " found"]]:
        """The tokens of the given rows, one after another.

        Args:
            rows: row numbers on the CPU; a row may stand more than once.

        Returns:
            Token numbers, and for each the position in ``rows`` that it came from; both on the CPU.
        """
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        ends = lengths.cumsum(0)
        position = torch.repeat_interleave(lengths)
        return torch.arange(len(position)) + (starts - ends + lengths)[position], position


def pack_states(
    token_states: Sequence[Float[Tensor, "tokens width"]], kept: Bool[Tensor, " tokens"] | None
) -> Float[Tensor, "kept layers width"]:
    """The layers of the kept tokens side by side; gradients flow through.

    Args:
        token_states: the L+1 layers of a batch's real tokens, embeddings first.
        kept: the tokens wanted; None for all.
    """
    # One layer at a time: the stack of all tokens is never made where few are wanted.
    return torch.stack([layer if kept is None else layer[kept] for layer in token_states], dim=1)


class TokenPlaces:
    """The places of wanted tokens: the labelled ones, or all where rows have the labels.

    Args:
        split: the tokenised rows.
        rows: row numbers, ascending.

    Attributes:
        offsets: [rows + 1], where each row's wanted tokens begin.
    """

    def __init__(self, split: TokenisedSplit, rows: np.ndarray) -> None:
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

    def spans(self, batch: MicroBatch) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
        """Where the wanted tokens of each of a batch's rows begin and end."""
        index = np.searchsorted(self.rows, batch.rows.numpy())
        return self.offsets[index], self.offsets[index + 1]

    def wanted(self, batch: MicroBatch) -> Bool[Tensor, " tokens"] | None:
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
        return self.split.labels[positions_in_spans(self.split.offsets[rows], self.split.offsets[rows + 1])]


def positions_in_spans(starts: Int[np.ndarray, " spans"], ends: Int[np.ndarray, " spans"]) -> Int[np.ndarray, " found"]:
    """start, start + 1, …, end - 1 of each span, one after another."""
    lengths = ends - starts
    return np.arange(lengths.sum()) + np.repeat(ends - lengths.cumsum(), lengths)


def live_features(
    token_states: Sequence[Float[Tensor, "tokens width"]], split: TokenisedSplit, batch: MicroBatch
) -> PackedFeatures:
    """Pack the tokens of a batch that a probe sees; row i of the result is the batch's row i.

    Args:
        token_states: the L+1 layers of the batch's real tokens, embeddings first.
        split: where the batch's labels are.
        batch: on the CPU.
    """
    device = token_states[0].device
    local = batch.rows.numpy() - split.rows[0]
    rows, slots = batch.inputs_of_tokens, batch.token_slots
    kept, labels = None, torch.from_numpy(split.labels)
    if split.label_per_token:
        starts = torch.from_numpy(split.offsets[local])
        labels = labels[starts[rows] + batch.positions_in_input]
        kept = labels != IGNORED
        rows, slots, labels = rows[kept], slots[kept], labels[kept]
    else:
        labels = labels[torch.from_numpy(local)]
    counts = torch.bincount(rows, minlength=len(batch.rows))
    return PackedFeatures(
        values=pack_states(token_states, None if kept is None else kept.to(device)),
        offsets=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        slots=slots.to(device),
        labels=labels.to(device),
        token_labels=split.label_per_token,
    )
