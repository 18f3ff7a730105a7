"""Inputs whose tokens know their slots: to compact batches, and back to where the tokens stood."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.corpora.batches import CompactBatch


@dataclass(frozen=True)
class PlacedInputs:
    """Right-padded inputs with a slot for every token.

    Attributes:
        input_ids, token_type_ids: as given.
        real: where there is a token.
        slots: each token's slot; 0 where there is none.
        lengths: tokens of each input.
        first_lengths: text tokens of its first (or only) text.
        pad_token_id: fills columns without a token.
        slots_in_all: S.
    """

    input_ids: Int[Tensor, "batch tokens"]
    real: Bool[Tensor, "batch tokens"]
    slots: Int[Tensor, "batch tokens"]
    token_type_ids: Int[Tensor, "batch tokens"]
    lengths: Int[Tensor, " batch"]
    first_lengths: Int[Tensor, " batch"]
    pad_token_id: int
    slots_in_all: int

    def compact(self, rows: Int[Tensor, " rows"]) -> CompactBatch:
        """Some of the inputs at the slots where any of them has a token."""
        where, columns, slots = self._columns(rows)
        shape = (len(rows), len(slots))
        input_ids = torch.full(shape, self.pad_token_id, dtype=torch.int64)
        attention_mask = torch.zeros(shape, dtype=torch.bool)
        token_type_ids = torch.zeros(shape, dtype=torch.int64)
        at = (where[0], columns)
        input_ids[at] = self.input_ids[rows][where].long()
        attention_mask[at] = True
        token_type_ids[at] = self.token_type_ids[rows][where].long()
        return CompactBatch(rows, slots, input_ids, attention_mask, token_type_ids)

    def restore(
        self,
        rows: Int[Tensor, " rows"],
        states: Float[Tensor, "rows m width"],
        into: Float[Tensor, "batch tokens width"],
    ) -> None:
        """Write the hidden states of ``compact(rows)`` into ``into``, at the places where their tokens stood."""
        where, columns, _ = self._columns(rows)
        device = states.device
        local, places, columns = (index.to(device) for index in (*where, columns))
        into[rows.to(device)[local], places] = states[local, columns]

    def _columns(self, rows: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """Where the rows' tokens stand (row, place), each token's column, and the slots that columns stand for."""
        local, places = self.real[rows].nonzero(as_tuple=True)
        token_slots = self.slots[rows][local, places]
        used = torch.zeros(self.slots_in_all, dtype=torch.bool)
        used[token_slots] = True
        column_of_slot = used.cumsum(dim=0) - 1
        return (local, places), column_of_slot[token_slots], used.nonzero()[:, 0]
