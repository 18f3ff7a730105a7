"""What PAPA must know of an encoder family: where its attention lives, what positions mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedConfig

from papa.models.dispatch import Dispatch
from papa.text.batches import MicroBatch


@dataclass(frozen=True)
class Family:
    """One encoder family behind transformers' classes; unless it says otherwise, all is as in BERT.

    Attributes:
        note: what a user should know of it, in one line, for ``papa models``.
        layers: its layers' modules, in order; layers may share one.
        attention, output, norm: where in a layer's module are self-attention; W_O, the linear map
            of what all heads put out, side by side; and the normalisation of a state plus what
            attention adds to it, None where layers normalise before attention.
        projections: attribute names, on a self-attention module, of the linear maps whose rows only
            heads with input-dependent attention need: queries, keys, positions. A module may lack
            some; one map may give values too.
        value: that of the map to values, where it is one of its own.
        rotary: whether queries and keys are turned by their positions.
        padding: the position that padding has, after which those of real tokens count, whatever
            their slots; None where positions are slots.
        prepare: what of a model does not call transformers' attention interface, or counts columns
            and must count slots; None where all is well.
        refuse: from the configuration, why a variant is not supported; None where it is.
    """

    name: str
    model_types: tuple[str, ...]
    note: str
    layers: Callable[[Any], Iterable[nn.Module]] = lambda model: model.encoder.layer
    attention: str = "attention.self"
    output: str = "attention.output.dense"
    norm: str | None = "attention.output.LayerNorm"
    projections: tuple[str, ...] = ("query", "key")
    value: str = "value"
    rotary: bool = False
    segments: bool = True
    padding: Callable[[PreTrainedConfig], int] | None = None
    prepare: Callable[[Any, Dispatch], None] | None = None
    refuse: Callable[[PreTrainedConfig], str | None] = lambda config: None

    def modules(self, model: nn.Module, path: str) -> list[Any]:
        """What is at a path in each layer, such as ``attention``."""
        return [layer.get_submodule(path) for layer in self.layers(model)]

    def positions(self, config: Any) -> int:
        """How many slots the encoder has positions for."""
        before = 0 if self.padding is None else self.padding(config) + 1
        return int(config.max_position_embeddings) - before

    def model_inputs(self, batch: MicroBatch, config: PreTrainedConfig) -> dict[str, Tensor]:
        """What the model is called with, each [1, tokens]: packed tokens, all of them real."""
        ids, positions = batch.input_ids, batch.slot_ids
        if self.padding is not None:
            positions = batch.positions_in_input + self.padding(config) + 1
        mask = torch.ones_like(ids)
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        if self.segments:
            # A tokenizer may tell apart segments that the model has no embeddings for.
            last = max(getattr(config, "type_vocab_size", 2) - 1, 0)
            inputs["token_type_ids"] = batch.token_type_ids.clamp(max=last)
        return {name: numbers[None] for name, numbers in inputs.items()}


def split_heads(
    states: Float[Tensor, "batch n heads_width"], head_width: int
) -> Float[Tensor, "batch heads n width"]:
    """One slice per head."""
    return states.unflatten(-1, (-1, head_width)).transpose(1, 2)
