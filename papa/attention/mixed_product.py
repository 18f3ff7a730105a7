"""(λA + (1-λ)C)·V of all heads of a layer, with its backward pass written out (paper, Section 3.2).

On a CPU PyTorch's fused attention handles one head of one input at a time, which costs more than
the arithmetic where inputs are short. Here heads are batched, and the mix is formed before the
values are multiplied: one product for both.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from papa.encoders.dispatch import InputDependentAttention, at_least_single

_FEWEST_COLUMNS = 16
"""Softmax takes shorter rows than a vector of the machine ten times as slowly."""


def mixed_product(
    own: InputDependentAttention,
    value: Float[Tensor, "batch heads m width"],
    constant: Float[Tensor, "#batch heads m m"],
    share: Float[Tensor, "heads 1 1"],
) -> Float[Tensor, "batch heads m width"]:
    """Return what the heads of a layer put out; gradients reach queries, keys, values, the bias of
    A, and λ.

    Args:
        own: what A follows from; without dropout.
        value: V.
        constant: C, masked and with its rows normalised for every input; gets no gradient.
        share: λ of every head.

    Returns:
        In float32 at least, as all is computed.
    """
    output: Tensor = _MixedProduct.apply(
        own.query, own.key, value, share, own.bias, constant, own.mask, own.scaling
    )
    return output


class _MixedProduct(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        share: Tensor,
        bias: Tensor | None,
        constant: Tensor,
        mask: Tensor | None,
        scaling: float,
    ) -> Tensor:
        batch, heads, m, _ = value.shape
        more = max(0, _FEWEST_COLUMNS - m)
        ctx.dtypes = [states.dtype for states in (query, key, value)]
        query, key, value = (
            at_least_single(states).flatten(0, 1) for states in (query, key, value)
        )
        if more:
            key, value = (F.pad(states, (0, 0, 0, more)) for states in (key, value))
        scores = torch.bmm(query, key.mT).unflatten(0, (batch, heads)).mul_(scaling)
        if bias is not None:
            scores[..., :m] += bias
        # Not -inf: a row without any token, which nobody reads, would turn the gradients of all
        # into NaN.
        lowest = torch.finfo(scores.dtype).min
        if mask is not None:
            scores[..., :m] += scores.new_zeros(mask.shape).masked_fill_(~mask, lowest)
        scores[..., m:] = lowest
        own = scores.softmax(dim=-1)
        difference = own - F.pad(constant, (0, more))
        # A + (λ - 1)(A - C) is λA + (1 - λ)C, and the gradient of λ needs A - C anyway.
        mix = torch.addcmul(own, difference, share - 1).flatten(0, 1)
        ctx.save_for_backward(query, key, value, share, own, difference, mix)
        ctx.scaling, ctx.bias_shape = scaling, None if bias is None else bias.shape
        return torch.bmm(mix, value).unflatten(0, (batch, heads))

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, share, own, difference, mix = ctx.saved_tensors
        of_query, of_key, of_value, of_share, of_bias = ctx.needs_input_grad[:5]
        batch, heads, m, _ = gradients[0].shape
        query_dtype, key_dtype, value_dtype = ctx.dtypes
        output = gradients[0].flatten(0, 1)
        of_mix = torch.bmm(output, value.mT).view_as(own)
        found: list[Tensor | None] = [None] * 5
        if of_value:
            found[2] = torch.bmm(mix.mT, output)[:, :m].unflatten(0, (batch, heads)).to(value_dtype)
        if of_share:
            found[3] = (of_mix * difference).sum((0, 2, 3)).view_as(share)
        if of_query or of_key or of_bias:
            # In place: nobody reads the gradient of the mix after λ has its own.
            weighted = of_mix.mul_(own)
            # The gradient of a softmax p is p∘(g - Σ p∘g); of it A gets the share λ.
            scores = torch.addcmul(weighted, own, weighted.sum(-1, keepdim=True), value=-1).mul_(
                share * ctx.scaling
            )
            if of_bias:
                # The bias is added after the scaling.
                found[4] = scores[..., :m].sum_to_size(ctx.bias_shape) / ctx.scaling
            scores = scores.flatten(0, 1)
            found[0] = torch.bmm(scores, key).unflatten(0, (batch, heads)).to(query_dtype)
            found[1] = torch.bmm(scores.mT, query)[:, :m].unflatten(0, (batch, heads)).to(key_dtype)
        return (*found, None, None, None)
