"""Packed features: the tokens of many rows one after another, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


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
