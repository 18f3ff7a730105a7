"""Constant heads against the fast stock attention (SDPA), at BERT-base's size, n=256,
no padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from benchmarks.rows import Row
from benchmarks.setting import base_sized, full_batch
from benchmarks.timing import Comparison, Part, in_turn
from papa.attention.constants import ConstantMatrices
from papa.attention.product import constant_product
from papa.attention.replacement import replaced
from papa.encoders.encoder import Encoder

BATCH, SLOTS = 8, 256


@cache
def model() -> Any:
    """The stock model."""
    return base_sized("sdpa")


@cache
def constants() -> ConstantMatrices:
    """Random constant matrices for every head."""
    config = model().config
    shape = (config.num_hidden_layers, config.num_attention_heads, SLOTS, SLOTS)
    return ConstantMatrices(
        torch.rand(shape), torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average"
    )


@torch.inference_mode()
def one_layer() -> Comparison:
    """The attention of one layer with its projections."""
    attention, heads = model().encoder.layer[0].attention.self, model().config.num_attention_heads
    width = model().config.hidden_size
    mask = torch.ones(BATCH, SLOTS, dtype=torch.bool)
    hidden_states = torch.randn(BATCH, SLOTS, width)

    def split(projection: nn.Linear) -> Tensor:
        projected = linear(hidden_states, projection.weight, projection.bias)
        return projected.view(BATCH, SLOTS, heads, -1).transpose(1, 2)

    def joined(output: Tensor) -> Tensor:
        return output.transpose(1, 2).reshape(BATCH, SLOTS, width)

    def stock() -> None:
        query, key, value = map(split, (attention.query, attention.key, attention.value))
        joined(scaled_dot_product_attention(query, key, value))

    def ours() -> None:
        joined(constant_product(constants().matrices[0], split(attention.value), mask))

    return in_turn(ours, Part(stock))


@torch.inference_mode()
def whole_encoder() -> Comparison:
    """All layers."""
    encoder, batch = Encoder(base_sized("eager")), full_batch(BATCH, SLOTS)
    heads = [(layer, head) for layer in range(encoder.layers) for head in range(encoder.heads)]

    def ours() -> None:
        with replaced(encoder, constants(), heads):
            encoder.observe(batch)

    return in_turn(ours, Part(lambda: model()(input_ids=batch.input_ids.view(BATCH, SLOTS))))


def head_rows() -> Iterator[Row]:
    """One layer's attention, and the whole encoder."""
    yield Row(
        "heads",
        "one layer's attention with projections, all heads constant, against SDPA",
        2.5,
        one_layer,
    )
    yield Row("heads", "whole encoder, all heads constant, against SDPA", 1.2, whole_encoder)
