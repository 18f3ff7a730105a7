"""Packed features: the tokens of many rows that a probe sees, one after another, without padding.

They are taken from a micro-batch that the encoder has just computed, gradients included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from papa.corpora.batches import MicroBatch
from papa.corpora.ragged import offsets_of, positions_in_spans
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED
from papa.errors import DataError


@dataclass(frozen=True)
class PackedFeatures:
    """A frozen encoder's hidden states of the tokens that a probe sees.

    The tokens of row r are ``values[offsets[r] : offsets[r + 1]]``: all its real tokens where a row
    has one label, its labelled tokens where tokens have labels.

    Attributes:
        values: hidden states of the L+1 layers, embeddings first, in any floating dtype; may be
            memory-mapped.
        offsets: where rows begin, ascending from 0 to the number of tokens; always on the CPU.
        slot_ids: the slot 0..S-1 of each token, in any integer dtype.
        labels: one label per row, or one per token: classes as int64, numbers as float32.
        token_labels: whether tokens have labels, not rows.
    """

    values: Float[Tensor, "tokens layers width"]
    offsets: Int[Tensor, " rows_and_one"]
    slot_ids: Int[Tensor, " tokens"]
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

    @property
    def label_counts(self) -> Int[Tensor, " rows"]:
        """Labels of each row, on the CPU."""
        return self.lengths if self.token_labels else torch.ones(len(self), dtype=torch.int64)

    def to(self, device: torch.device) -> PackedFeatures:
        """The same features on another device."""
        moved = {name: getattr(self, name).to(device) for name in ("values", "slot_ids", "labels")}
        return replace(self, **moved)

    def select(self, rows: Int[Tensor, " n"]) -> PackedFeatures:
        """A copy of the given rows, in the given order."""
        tokens, _ = self.tokens_of(rows)
        return replace(
            self,
            values=self.values[tokens],
            offsets=torch.from_numpy(offsets_of(self.lengths[rows].numpy())),
            slot_ids=self.slot_ids[tokens],
            labels=self.labels[tokens if self.token_labels else rows],
        )

    def tokens_of(
        self, rows: Int[Tensor, " n"]
    ) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """The tokens of rows, repeats allowed, one after another, and for each the position in
        ``rows`` that it came from; all on the CPU.
        """
        starts = self.offsets[rows]
        lengths = (self.offsets[rows + 1] - starts).numpy()
        tokens = positions_in_spans(starts.numpy(), lengths)
        return torch.from_numpy(tokens), torch.from_numpy(np.repeat(np.arange(len(rows)), lengths))


def probed_states(
    token_states: Sequence[Float[Tensor, "tokens width"]],
    split: TokenisedSplit,
    rows: Int[np.ndarray, " rows"],
) -> Float[Tensor, "kept layers width"]:
    """The layers of the tokens that a probe sees of rows, side by side; gradients flow through."""
    if not split.label_per_token:
        return torch.stack([*token_states], dim=1)
    mask = torch.from_numpy(split.labels_of(rows) != IGNORED).to(token_states[0].device)
    # One layer at a time: the stack of all tokens is never made where few are wanted.
    return torch.stack([layer[mask] for layer in token_states], dim=1)


def pack_features(
    values: Float[Tensor, "kept layers width"],
    split: TokenisedSplit,
    rows: Int[np.ndarray, " rows"],
) -> PackedFeatures:
    """The features with their slots and labels, row by row; ``values`` are of the tokens that a
    probe sees.
    """
    slot_ids = split.tokens(None if np.array_equal(rows, split.rows) else rows).slot_ids
    labels = split.labels_of(rows)
    if split.label_per_token:
        kept = labels != IGNORED
        slot_ids, labels = slot_ids[kept], labels[kept]
    return PackedFeatures(
        values=values,
        offsets=torch.from_numpy(offsets_of(split.probed_lengths[split.index_of(rows)])),
        # A copy: a mapped file cannot be written to, and PyTorch knows no such tensor.
        slot_ids=torch.tensor(slot_ids).to(values.device),
        labels=torch.from_numpy(labels).to(values.device),
        token_labels=split.label_per_token,
    )


def live_features(
    token_states: Sequence[Float[Tensor, "tokens width"]], split: TokenisedSplit, batch: MicroBatch
) -> PackedFeatures:
    """What a probe sees of a batch on the CPU, row by row."""
    rows = batch.rows.numpy()
    return pack_features(probed_states(token_states, split, rows), split, rows)


def count_tokens(split: TokenisedSplit) -> int:
    """The tokens of the split that a probe sees."""
    tokens = int(split.probed_lengths.sum())
    if tokens == 0:
        raise DataError(
            f"the {split.name} split has no labelled token: check the task's text and label columns"
        )
    return tokens
