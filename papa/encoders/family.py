"""What PAPA must know about an encoder family: where its attention lives and what its positions mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from papa.corpora.batches import CompactBatch
from papa.encoders.dispatch import Dispatch


@dataclass(frozen=True)
class Family:
    """One encoder family behind transformers' classes.

    Attributes:
        name: the family's name in messages and in ``papa models``.
        model_types: the ``model_type`` values of its configurations.
        attentions: its self-attention modules, one a layer in order; a module that layers share stands once a layer.
        projections: attribute names, on a self-attention module, of the linear maps to queries and keys.
        model_inputs: the keyword arguments of the model's forward pass for a compact batch.
        route: makes every self-attention module send its attention through the dispatch.
        positions: from the configuration, how many slots the encoder has positions for.
        pad_positions: note on how padding-free inputs are numbered, for ``papa models``.
        attention_implementation: what the model is loaded with.
    """

    name: str
    model_types: tuple[str, ...]
    attentions: Callable[[nn.Module], Sequence[nn.Module]]
    projections: tuple[str, str]
    model_inputs: Callable[[CompactBatch, Any], dict[str, Tensor]]
    route: Callable[[nn.Module, Dispatch], None]
    positions: Callable[[Any], int]
    pad_positions: str
    attention_implementation: str = "papa"


def positions_are_slots(batch: CompactBatch) -> Int[Tensor, "1 m"]:
    """Absolute positions: a token's position is its slot."""
    return batch.slots[None]


def positions_count_tokens(batch: CompactBatch, pad_token_id: int) -> Int[Tensor, "batch m"]:
    """RoBERTa's numbering: real tokens count from ``pad_token_id + 1``; padding has position ``pad_token_id``."""
    real = batch.attention_mask.long()
    return real.cumsum(dim=1) * real + pad_token_id
