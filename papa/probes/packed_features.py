"""Features packed without padding: the hidden states of the tokens that a probe reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from papa.text.batches import MicroBatch
from papa.text.corpus import TokenisedSplit
from papa.text.layout import offsets_of, positions_in_spans
from papa.text.tokens import IGNORED


@dataclass(frozen=True)
class PackedFeatures:
    """A frozen encoder's hidden states of the tokens that a probe reads.

    The tokens of row r are ``values[offsets[r] : offsets[r + 1]]``: all its real tokens if a row
    has one label, its labelled ones with ``token_labels``. ``values`` are of the L+1 layers,
    embeddings first; ``offsets`` stay on the CPU; labels are int64 classes or float32 numbers.
    """

    values: Float[Tensor, "tokens layers width"]
    offsets: Int[Tensor, " rows_and_one"]
    slot_ids: Int[Tensor, " tokens"]
    labels: Shaped[Tensor, " rows_or_tokens"]
    token_labels: bool

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        return self.offsets.diff()

    def select(self, rows: Int[Tensor, " n"], device: torch.device) -> PackedFeatures:
        """Return a copy of these rows, in this order, on a device."""
        tokens, _ = self.tokens_of(rows)
        return PackedFeatures(
            self.values[tokens].to(device),
            torch.from_numpy(offsets_of(self.lengths[rows].numpy())),
            self.slot_ids[tokens].to(device),
            self.labels[tokens if self.token_labels else rows].to(device),
            self.token_labels,
        )

    def tokens_of(
        self, rows: Int[Tensor, " n"]
    ) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """Return the tokens of rows, which may repeat, one after another, and for each token the
        position of its row in ``rows``; all on the CPU.
        """
        starts = self.offsets[rows]
        lengths = (self.offsets[rows + 1] - starts).numpy()
        tokens = positions_in_spans(starts.numpy(), lengths)
        return torch.from_numpy(tokens), torch.from_numpy(np.repeat(np.arange(len(rows)), lengths))


def pack_features(
    values: Float[Tensor, "kept layers width"],
    split: TokenisedSplit,
    rows: Int[np.ndarray, " rows"],
) -> PackedFeatures:
    """Return the features of the tokens that a probe reads with slots and labels, row by row."""
    slot_ids = split.tokens(rows).slot_ids
    labels = split.labels_of(rows)
    if split.label_per_token:
        is_labelled = labels != IGNORED
        slot_ids = slot_ids[is_labelled]
        labels = labels[is_labelled]
    return PackedFeatures(
        values,
        torch.from_numpy(offsets_of(split.probed_lengths[split.index_of(rows)])),
        torch.from_numpy(slot_ids).to(values.device),
        torch.from_numpy(labels).to(values.device),
        split.label_per_token,
    )


def live_features(
    token_states: Sequence[Float[Tensor, "tokens width"]], split: TokenisedSplit, batch: MicroBatch
) -> PackedFeatures:
    """Return the features that a probe reads of a batch, row by row; gradients flow through."""
    rows = batch.rows.numpy()
    if split.label_per_token:
        mask = torch.from_numpy(split.labels_of(rows) != IGNORED).to(token_states[0].device)
        # One layer at a time: all layers of all tokens would need much more memory.
        token_states = [layer[mask] for layer in token_states]
    return pack_features(torch.stack([*token_states], dim=1), split, rows)
