"""The plain way, written for comparison: padded inputs, eager attention, a matrix per input, head and layer.

It follows the semantics of the paper's own experiments with nothing left out and nothing shared, and serves as
the independent side of equivalence tests and of benchmarks. It works for families behind transformers' attention
interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask


def masked_and_normalised(matrices: Tensor, attention_mask: Tensor) -> Tensor:
    """C on each input's real slots, rows divided by their sums: [heads, S, S] → [batch, heads, S, S]."""
    real = attention_mask.to(matrices.dtype)
    masked = matrices[None] * real[:, None, :, None] * real[:, None, None, :]
    return masked / masked.sum(dim=-1, keepdim=True).clamp(min=1e-30)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, Tensor]:
    scores = torch.matmul(query, key.transpose(2, 3)) * (scaling or query.shape[-1] ** -0.5)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = scores.softmax(dim=-1)
    plain = getattr(module, "plain", None)
    if plain is not None:
        probabilities = plain(probabilities)
    return torch.matmul(probabilities, value).transpose(1, 2).contiguous(), probabilities


AttentionInterface.register("plain", _attention)
AttentionMaskInterface.register("plain", eager_mask)


@contextmanager
def plainly(modules: Sequence[nn.Module], change: object) -> Iterator[None]:
    """Inside the block, ``change(layer)(probabilities)`` is what each attention module multiplies with V."""
    for layer, module in enumerate(modules):
        module.plain = change(layer)  # type: ignore[operator]
    try:
        yield
    finally:
        for module in modules:
            del module.plain


def with_constants(matrices: Tensor, heads: Sequence[tuple[int, int]], attention_mask: Tensor) -> object:
    """For ``plainly``: overwrite the attention of ``heads`` by masked, normalised constants."""

    def change(layer: int) -> object:
        constant = [head for at, head in heads if at == layer]

        def overwrite(probabilities: Tensor) -> Tensor:
            probabilities = probabilities.clone()
            probabilities[:, constant] = masked_and_normalised(
                matrices[layer, constant].to(probabilities.dtype), attention_mask
            )
            return probabilities

        return overwrite

    return change


def with_mix(matrices: Tensor, shares: Tensor, attention_mask: Tensor) -> object:
    """For ``plainly``: λA + (1-λ)C for every head."""

    def change(layer: int) -> object:
        def mix(probabilities: Tensor) -> Tensor:
            share = shares[layer][None, :, None, None]
            return share * probabilities + (1 - share) * masked_and_normalised(
                matrices[layer].to(probabilities.dtype), attention_mask
            )

        return mix

    return change
