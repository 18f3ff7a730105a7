"""What PAPA must know of an encoder family: where its attention lives, what positions mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from transformers import PreTrainedConfig

from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import Dispatch


@dataclass(frozen=True)
class Family:
    """One encoder family behind transformers' classes.

    Attributes:
        name: the family's name in messages and in ``papa models``.
        model_types: the ``model_type`` values of its configurations.
        attentions: its self-attention modules, one per layer in order; layers may share one. They
            are where BERT has them, unless a family says otherwise.
        output_maps: W_O, the linear maps of what all heads of a layer put out, side by side;
            likewise.
        attention_norms: the layer normalisations of a state plus what its layer's attention adds to
            it; None where layers normalise before attention.
        projections: attribute names, on a routed self-attention module, of the linear maps whose
            rows only heads with input-dependent attention need: queries, keys, positions. A module
            may lack some.
        value: that of the map to values, likewise; a module before routing may lack it.
        model_inputs: the keyword arguments of the model's forward pass for a micro-batch, each [1,
            tokens].
        route: makes a self-attention module send its attention through the dispatch.
        positions: from the configuration, how many slots the encoder has positions for.
        note: what a user should know of it, in one line, for ``papa models``.
        attention_implementation: what the model is loaded with.
        prepare: what else of the model counts columns and must count slots.
        scores_of_means: of a model, a layer, a query and a key of each head [heads, width] before
            their rotation, and S: their scores at all slots [heads, S, S], -inf where the layer
            does not look; None where positions are not rotary.
        stored: an attention module's maps to queries, keys and values as files name them, where
            ``route`` takes them out of one map; None where it leaves them.
        refuse: from the configuration, why a variant is not supported; None where it is.
    """

    name: str
    model_types: tuple[str, ...]
    projections: tuple[str, ...]
    model_inputs: Callable[[MicroBatch, PreTrainedConfig], dict[str, Tensor]]
    route: Callable[[nn.Module, Dispatch], None]
    positions: Callable[[PreTrainedConfig], int]
    note: str
    attentions: Callable[[Any], Sequence[nn.Module]] = lambda model: [
        layer.attention.self for layer in model.encoder.layer
    ]
    output_maps: Callable[[Any], Sequence[nn.Linear]] = lambda model: [
        layer.attention.output.dense for layer in model.encoder.layer
    ]
    attention_norms: Callable[[Any], Sequence[nn.Module]] | None = lambda model: [
        layer.attention.output.LayerNorm for layer in model.encoder.layer
    ]
    value: str = "value"
    attention_implementation: str = "papa"
    prepare: Callable[[nn.Module, Dispatch], None] | None = None
    scores_of_means: Callable[[Any, int, Tensor, Tensor, int], Tensor] | None = None
    stored: Callable[[Any], dict[str, Tensor]] | None = None
    refuse: Callable[[PreTrainedConfig], str | None] = lambda config: None


def every_token(batch: MicroBatch) -> Bool[Tensor, "1 tokens"]:
    """Return the attention mask of packed tokens: each of them is real."""
    return torch.ones_like(batch.input_ids, dtype=torch.bool)[None]


def positions_are_slots(batch: MicroBatch) -> Int[Tensor, "1 tokens"]:
    """Absolute positions: a token's position is its slot, but in an ``OrdinaryBatch``."""
    return batch.positions[None]


def positions_count_tokens(batch: MicroBatch, pad_token_id: int) -> Int[Tensor, "1 tokens"]:
    """RoBERTa's numbering: real tokens count from ``pad_token_id + 1``."""
    return (batch.positions_in_input + pad_token_id + 1)[None]
