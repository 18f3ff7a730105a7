"""Compact batches: padding never reaches the encoder."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class CompactBatch:
    """Inputs of one corpus at the slots where any of them is real.

    Attributes:
        rows: the inputs' row numbers in their corpus.
        slots: the slots 0..S-1 that columns stand for, ascending.
        input_ids: token ids; the tokenizer's pad id where an input has no token at that slot.
        attention_mask: whether an input has a token at that slot.
        token_type_ids: segment ids; 0 where there is no token.
    """

    rows: Int[Tensor, " batch"]
    slots: Int[Tensor, " m"]
    input_ids: Int[Tensor, "batch m"]
    attention_mask: Bool[Tensor, "batch m"]
    token_type_ids: Int[Tensor, "batch m"]
