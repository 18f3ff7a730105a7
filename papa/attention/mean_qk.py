"""Constant matrices from two vectors a head: its mean query and its mean key, at every distance.

With rotary positions the score of a query and a key depends on their distance alone once both are
means (the score behind DuoAttention's heads in kvpress). Without them it is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices
from papa.corpora.batches import MicroBatch
from papa.encoders.encoder import Encoder
from papa.errors import EncoderError


@torch.inference_mode()
def mean_qk(encoder: Encoder, batches: Iterable[MicroBatch], slots: int) -> ConstantMatrices:
    """softmax(RoPE(q̄) · RoPE(k̄)), of the means over all tokens before their rotation, of an
    encoder with rotary positions.
    """
    scores = encoder.family.scores_of_means
    if scores is None:
        raise EncoderError(no_rotation(encoder.family.name))
    sums = torch.zeros(2, encoder.layers, encoder.width, dtype=torch.float64, device=encoder.device)
    modules: list[Any] = list(encoder.family.attentions(encoder.model))
    tokens = 0
    with ExitStack() as hooks:
        for which, name in enumerate(("query", "key")):
            for layer, module in enumerate(modules):
                see = partial(_add, sums[which, layer])
                hooks.callback(getattr(module, name).register_forward_hook(see).remove)
        for batch in batches:
            encoder.observe(batch)
            tokens += len(batch.input_ids)
    query, key = (sums / tokens).float().unflatten(-1, (encoder.heads, -1)).unbind()
    matrices = [
        scores(encoder.model, layer, query[layer], key[layer], slots).softmax(dim=-1)
        for layer in range(encoder.layers)
    ]
    seen = torch.ones(slots, slots, dtype=torch.bool)
    return ConstantMatrices(torch.stack(matrices).cpu(), seen, "mean_qk")


def _add(sums: Tensor, module: nn.Module, given: Any, projected: Tensor) -> None:
    sums += projected[0].double().sum(dim=0)


def no_rotation(family: str) -> str:
    """What a person reads of an encoder without rotary positions."""
    return (
        f"constants 'mean_qk' need rotary positions, and {family} has none, so that the mean query "
        "and the mean key have one score at every distance: take relative"
    )
