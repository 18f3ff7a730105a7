"""The linear maps of a frozen encoder's layers on a CPU, in bfloat16: weights rounded and arranged
once.

Autocast would round float32 weights at every call, as it keeps only those that need gradients; and
a product rearranges its weights for the machine at every call unless they are given to it so
arranged. Here both happen once. Products are summed in float32; what goes in and what comes out is
rounded to bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

_TOKENS = 512
"""For how many tokens weights are arranged: those of a micro-batch."""


class FrozenLinear:
    """x Wᵀ + b in bfloat16, of a float32 map on a CPU whose W and b do not change.

    Gradients pass through to x, dX = dY W, and nothing is kept for them but W.
    """

    def __init__(self, linear: nn.Linear) -> None:
        # A copy that is made in inference mode could serve no pass with gradients.
        with torch.inference_mode(False), torch.no_grad():
            self._forward = _arranged(linear.weight)
        self._linear = linear

    def __call__(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """Return the map of x, which is of any floating dtype, in bfloat16."""
        return _FrozenProduct.apply(x, self)

    def product(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """x Wᵀ + b."""
        return _product(x, self._forward, self._linear.bias)

    def gradient(self, of_outputs: Float[Tensor, "... outputs"]) -> Float[Tensor, "... inputs"]:
        """dY W."""
        return _product(of_outputs, self._backward, None)

    @cached_property
    def _backward(self) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            return _arranged(self._linear.weight.T)


class _FrozenProduct(torch.autograd.Function):
    """Autograd's way through a frozen map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, frozen: FrozenLinear) -> Tensor:
        ctx.frozen, ctx.dtype = frozen, x.dtype
        return frozen.product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.frozen.gradient(gradients[0]).to(ctx.dtype), None


def _arranged(weight: Float[Tensor, "outputs inputs"]) -> Tensor:
    """Return the weights in bfloat16, in the order of the machine's own matrix instructions."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.to(torch.bfloat16).contiguous(), _TOKENS)


def _product(x: Tensor, arranged: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x.to(torch.bfloat16), arranged, bias, "none", [], "")


Kind = Callable[[nn.Linear], Callable[[Tensor], Tensor]]
"""From a frozen linear map to what computes it."""


class FrozenLinears:
    """The linear maps of a model's layers, which are in lists of modules, as ``FrozenLinear`` or
    another ``kind``, which stand for the model's own while it runs.

    Maps outside the layers keep float32: the few that widen embeddings, from which the residual
    stream starts.
    """

    def __init__(self, model: nn.Module, kind: Kind = FrozenLinear) -> None:
        stacks = (module for module in model.modules() if isinstance(module, nn.ModuleList))
        maps = (
            module
            for stack in stacks
            for module in stack.modules()
            if isinstance(module, nn.Linear)
        )
        self._frozen = {linear: kind(linear) for linear in dict.fromkeys(maps)}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside the block the model's own maps are passed over; gradients may be taken after."""
        before = {linear: linear.__dict__.get("forward") for linear in self._frozen}
        for linear, frozen in self._frozen.items():
            linear.__dict__["forward"] = frozen
        try:
            yield
        finally:
            for linear, forward in before.items():
                if forward is None:
                    del linear.__dict__["forward"]
                else:
                    linear.__dict__["forward"] = forward
