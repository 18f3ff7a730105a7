"""Mix every head's own attention with its constant matrix: B = λA + (1-λ)C (paper, Section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.product import at_slots, constant_product, normalised_rows
from papa.attention.replacement import check_fits
from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import InputDependentAttention, at_least_single
from papa.encoders.encoder import Encoder

_FEWEST_COLUMNS = 16
"""Softmax takes shorter rows than a vector of the machine ten times as slowly."""


def mixed_product(
    own: InputDependentAttention,
    value: Float[Tensor, "batch heads m width"],
    constant: Float[Tensor, "#batch heads m m"],
    share: Float[Tensor, "heads 1 1"],
) -> Float[Tensor, "batch heads m width"]:
    """What the heads of a layer put out; gradients reach queries, keys, values, the bias of
    A, and λ.

    All is computed in float32 at least, without dropout. C is masked, has rows that are normalised
    for every input, and gets no gradient.
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


MOST_COLUMNS = 128
"""Up to here the mix of a micro-batch is written out on a CPU. It takes batch · heads · m² numbers
a layer, which short inputs keep small; with longer ones the fused product is as fast and holds none
of them.
"""


@dataclass(frozen=True)
class _Mixing:
    """The rule of one layer: the mix is linear in V, so only what A and C put out is ever added."""

    matrices: Float[Tensor, "heads slots slots"]
    share: Float[Tensor, "heads 1 1"]
    dependent_heads: None = None

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        all_heads = torch.arange(len(self.matrices), device=value.device)
        single = at_least_single(value)
        matrices = at_slots(self.matrices, all_heads, batch.columns).to(single.dtype)
        if own.dropout > 0:
            # Entries of the mix itself are dropped, so here it is written out.
            probabilities = replace(own, dropout=0.0).probabilities()
            constant = normalised_rows(matrices, batch.attention_mask)
            mix = constant + self.share * (probabilities - constant)
            return torch.matmul(F.dropout(mix, own.dropout), single)
        if value.device.type == "cpu" and len(batch.columns) <= MOST_COLUMNS:
            return mixed_product(
                own, value, normalised_rows(matrices, batch.attention_mask), self.share
            )
        constant = constant_product(matrices, single, batch.attention_mask)
        return constant + self.share * (own.product(value) - constant)


def mixed(
    encoder: Encoder, constants: ConstantMatrices, theta: Float[Tensor, "layers heads"]
) -> AbstractContextManager[None]:
    """Inside the block every head puts out λ·A·V + (1-λ)·C·V with λ = sigmoid(θ) as θ was at its
    start.

    Gradients reach θ: of one backward pass, so training opens a block for each.
    """
    return mixed_by(encoder, constants, theta.sigmoid())


@contextmanager
def mixed_by(
    encoder: Encoder, constants: ConstantMatrices, shares: Float[Tensor, "layers heads"]
) -> Iterator[None]:
    """``mixed`` with the shares themselves in λ's place."""
    check_fits(constants, encoder)
    matrices = constants.matrices.to(encoder.device)
    # Unbound at once for all layers: what shares follow from gets one gradient and not one a layer.
    by_layer = shares[:, :, None, None].unbind()
    rules = {layer: _Mixing(matrices[layer], share) for layer, share in enumerate(by_layer)}
    with encoder.ruled(rules):
        yield
