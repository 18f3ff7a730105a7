"""Constant heads against the fast stock attention (SDPA), at BERT-base's size, n=256, no padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from benchmarks.measure import Measured, in_turn
from benchmarks.setting import base_sized, full_batch
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import constant_product, replaced
from papa.encoders.encoder import Encoder

BATCH, SLOTS = 8, 256


def head_rows() -> Iterator[Measured]:
    """One layer's attention, and the whole encoder."""
    torch.manual_seed(0)
    model: Any = base_sized("sdpa")
    encoder = Encoder(base_sized("eager"))
    constants = ConstantMatrices(
        torch.rand(encoder.layers, encoder.heads, SLOTS, SLOTS), torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average"
    )
    mask = torch.ones(BATCH, SLOTS, dtype=torch.bool)
    attention = model.encoder.layer[0].attention.self
    hidden_states = torch.randn(BATCH, SLOTS, encoder.width)

    def split(projection: torch.nn.Linear) -> torch.Tensor:
        projected = linear(hidden_states, projection.weight, projection.bias)
        return projected.view(BATCH, SLOTS, encoder.heads, encoder.head_width).transpose(1, 2)

    def joined(output: torch.Tensor) -> torch.Tensor:
        return output.transpose(1, 2).reshape(BATCH, SLOTS, encoder.width)

    def stock() -> torch.Tensor:
        query, key, value = map(split, (attention.query, attention.key, attention.value))
        return joined(scaled_dot_product_attention(query, key, value))

    def ours() -> torch.Tensor:
        return joined(constant_product(constants.matrices[0], split(attention.value), mask))

    batch = full_batch(BATCH, SLOTS)
    heads = [(layer, head) for layer in range(encoder.layers) for head in range(encoder.heads)]

    def whole() -> None:
        with replaced(encoder, constants, heads):
            encoder.observe(batch)

    with torch.inference_mode():
        yield in_turn(
            "one layer's attention with projections, all heads constant, against SDPA",
            ours,
            stock,
            target=2.5,
            repeats=31,
        )
        yield in_turn(
            "whole encoder, all heads constant, against SDPA",
            whole,
            lambda: model(input_ids=batch.input_ids.view(BATCH, SLOTS)),
            target=1.2,
            repeats=5,
        )
