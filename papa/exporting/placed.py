"""Inputs whose tokens know their slots: to compact batches, and back to where the tokens stood."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    input_ids: Int[Tensor, "batch tokens"]
    real: Bool[Tensor, "batch tokens"]
    slots: Int[Tensor, "batch tokens"]
    token_type_ids: Int[Tensor, "batch tokens"]
    lengths: Int[Tensor, " batch"]
    first_lengths: Int[Tensor, " batch"]

    def compact(self, rows: Int[Tensor, " rows"]) -> CompactBatch:
        """Some of the inputs as a batch without padding."""
        real = self.real[rows]
        return CompactBatch.of_tokens(
            rows=rows,
            lengths=self.lengths[rows],
            token_slots=self.slots[rows][real],
            input_ids=self.input_ids[rows][real],
            token_type_ids=self.token_type_ids[rows][real],
        )

    def restore(
        self,
        rows: Int[Tensor, " rows"],
        states: Float[Tensor, "real width"],
        into: Float[Tensor, "batch tokens width"],
    ) -> None:
        """Write the states of the tokens of ``compact(rows)`` into ``into``, where they came from."""
        inputs, places = (index.to(states.device) for index in self.real[rows].nonzero(as_tuple=True))
        into[rows.to(states.device)[inputs], places] = states
