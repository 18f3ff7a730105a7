"""(λA + (1-λ)C)·V of all heads of a layer, with its backward pass written out (paper, Section 3.2).

On a CPU PyTorch's fused attention handles one head of one input at a time, which costs more than the arithmetic where
inputs are short. Here heads are batched, and the mix is formed before the values are multiplied: one product for both.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from papa.encoders.dispatch import InputDependentAttention, at_least_single

_VECTOR = 16
"""Columns are filled up to a multiple: softmax takes what is beyond it number by number, each as long as a vector."""


def mixed_product(
    own: InputDependentAttention,
    value: Float[Tensor, "batch heads m width"],
    constant: Float[Tensor, "#batch heads m m"],
    share: Float[Tensor, "heads 1 1"],
) -> Float[Tensor, "batch heads m width"]:
    """What the heads of a layer put out; gradients reach queries, keys, values, the bias of A, and λ.

    Args:
        own: what A follows from; without dropout.
        value: V.
        constant: C, masked and with its rows normalised for every input; gets no gradient.
        share: λ of every head.
    """
    columns = value.shape[2]
    more = -columns % _VECTOR
    # In float32, whatever the projections are computed in.
    query, key, value = (F.pad(at_least_single(states), (0, 0, 0, more)) for states in (own.query, own.key, value))
    bias = None if own.bias is None else F.pad(at_least_single(own.bias), (0, more, 0, more))
    hidden = value.new_zeros(1, 1, 1, columns + more, dtype=torch.bool)
    hidden[..., columns:] = True
    if own.mask is not None:
        mask = ~own.mask
        rows = more if mask.shape[2] > 1 else 0
        hidden = hidden | F.pad(mask, (0, more, 0, rows))
    constant = F.pad(constant, (0, more, 0, more))
    output: Tensor = _MixedProduct.apply(query, key, value, share, bias, constant, hidden, own.scaling)
    return output[:, :, :columns]


class _MixedProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        share: Tensor,
        bias: Tensor | None,
        constant: Tensor,
        hidden: Tensor,
        scaling: float,
    ) -> Tensor:
        batch, heads, m, _ = value.shape
        matrices, products = (batch, heads, m, m), (batch * heads, m, m)
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
        scores = torch.bmm(query, key.mT).view(matrices).mul_(scaling)
        if bias is not None:
            scores += bias
        # Not -inf: a row without any token, which nobody reads, would turn the gradients of all into NaN.
        scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
        own = scores.softmax(dim=-1)
        difference = own - constant
        mix = torch.addcmul(constant, difference, share).view(products)
        ctx.save_for_backward(query, key, value, share, own, difference, mix)
        ctx.scaling, ctx.bias_shape = scaling, None if bias is None else bias.shape
        return torch.bmm(mix, value).unflatten(0, (batch, heads))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, share, own, difference, mix = ctx.saved_tensors
        of_query, of_key, of_value, of_share, of_bias = ctx.needs_input_grad[:5]
        batch, heads = own.shape[:2]
        output = gradients[0].flatten(0, 1)
        mix_gradient = torch.bmm(output, value.mT).view_as(own)
        found: list[Tensor | None] = [None] * 5
        if of_value:
            found[2] = torch.bmm(mix.mT, output).unflatten(0, (batch, heads))
        if of_share:
            found[3] = (mix_gradient * difference).sum((0, 2, 3)).view_as(share)
        if of_query or of_key or of_bias:
            weighted = mix_gradient.mul_(own)
            scores = torch.addcmul(weighted, own, weighted.sum(-1, keepdim=True), value=-1).mul_(share)
            if of_bias:
                found[4] = scores.sum_to_size(ctx.bias_shape)
            scores = scores.mul_(ctx.scaling).flatten(0, 1) if not of_bias else (scores * ctx.scaling).flatten(0, 1)
            found[0] = torch.bmm(scores, key).unflatten(0, (batch, heads))
            found[1] = torch.bmm(scores.mT, query).unflatten(0, (batch, heads))
        return (*found, None, None, None)
