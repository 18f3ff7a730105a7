"""The linear maps of a frozen encoder's layers: on a CPU in bfloat16, weights rounded and arranged
once; and those to queries and keys for some heads alone.

Autocast would round float32 weights to bfloat16 at every call, as it keeps only those that need
gradients; and a product rearranges its weights for the machine at every call unless they are given
to it so arranged. Products are summed in float32; what goes in and what comes out is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from papa.encoders.dispatch import Dispatch

_TOKENS = 512
"""For how many tokens weights are arranged: those of a micro-batch."""


class FrozenLinear:
    """x Wᵀ + b in bfloat16, of a float32 map on a CPU whose W and b do not change.

    Gradients pass through to x, dX = dY W, and nothing is kept for them but W.
    """

    def __init__(self, linear: nn.Linear) -> None:
        # A copy that is made in inference mode could serve no pass with gradients.
        with torch.inference_mode(False), torch.no_grad():
            self.forward = _arranged(linear.weight)
        self.linear = linear

    def __call__(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """The map of x, which is of any floating dtype, in bfloat16."""
        return _FrozenProduct.apply(x, self)

    @cached_property
    def backward(self) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            return _arranged(self.linear.weight.T)


class _FrozenProduct(torch.autograd.Function):
    """Autograd's way through a frozen map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, frozen: FrozenLinear) -> Tensor:
        ctx.frozen, ctx.dtype = frozen, x.dtype
        return _product(x, frozen.forward, frozen.linear.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _product(gradients[0], ctx.frozen.backward, None).to(ctx.dtype), None


def _arranged(weight: Float[Tensor, "outputs inputs"]) -> Tensor:
    """The weights in bfloat16, in the order of the machine's own matrix instructions."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.to(torch.bfloat16).contiguous(), _TOKENS)


def _product(x: Tensor, arranged: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x.to(torch.bfloat16), arranged, bias, "none", [], "")


Kind = Callable[[nn.Linear], Callable[[Tensor], Tensor]]
"""From a frozen linear map to what computes it."""


class FrozenLinears:
    """The linear maps of a model's layers, which are in lists of modules, as ``FrozenLinear``.

    These stand for the model's own while it runs.

    Maps outside the layers keep float32: the few that widen embeddings, from which the residual
    stream starts.
    """

    def __init__(self, model: nn.Module) -> None:
        stacks = (module for module in model.modules() if isinstance(module, nn.ModuleList))
        maps = (
            module
            for stack in stacks
            for module in stack.modules()
            if isinstance(module, nn.Linear)
        )
        self._frozen = {linear: FrozenLinear(linear) for linear in dict.fromkeys(maps)}

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


class DependentHeadsProjection(nn.Module):
    """A query or key projection that is computed for the heads the layer's rule asks for, and no
    others.

    The rows of those heads are kept, as ``prepared`` makes them, one copy for each set of heads:
    layers may share the projection. While its weights are in training they are taken anew at every
    call.
    """

    def __init__(
        self, linear: nn.Linear, dispatch: Dispatch, head_width: int, prepared: Kind
    ) -> None:
        super().__init__()
        self.linear = linear
        self.dispatch = dispatch
        self.head_width = head_width
        self._prepared = prepared
        self._slices: dict[tuple[int, ...], Callable[[Tensor], Tensor]] = {}

    def forward(
        self, hidden_states: Float[Tensor, "1 tokens width"]
    ) -> Float[Tensor, "1 tokens own_width"]:
        heads = self.dispatch.dependent_heads()
        if heads is None:
            return self.linear(hidden_states)
        if heads.numel() == 0:
            # Nothing is asked for: a view stands in, so that the layer can still name its shapes.
            return hidden_states[..., : self.head_width]
        return self._rows_of(tuple(heads.tolist()))(hidden_states)

    def _rows_of(self, heads: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        in_training = self.linear.weight.requires_grad
        if in_training or heads not in self._slices:
            of_heads = self.linear.weight.unflatten(0, (-1, self.head_width))
            weight = of_heads[list(heads)].flatten(0, 1)
            bias = self.linear.bias
            if bias is not None:
                bias = bias.unflatten(0, (-1, self.head_width))[list(heads)].flatten()
            if in_training:
                self._slices.clear()  # They are of other weights.
                return partial(F.linear, weight=weight, bias=bias)
            self._slices[heads] = self._prepared(linear_of(weight, bias))
        return self._slices[heads]


@contextmanager
def dependent_heads_projected(
    modules: list[nn.Module],
    names: Sequence[str],
    dispatch: Dispatch,
    head_width: int,
    prepared: Kind,
) -> Iterator[None]:
    """Inside the block, and blocks in it, queries and keys are computed only where rules ask."""
    whole = [
        (module, name, getattr(module, name))
        for module in dict.fromkeys(modules)  # Layers that share one share its projections.
        for name in names
        if not isinstance(getattr(module, name, None), DependentHeadsProjection | None)
    ]
    for module, name, linear in whole:
        setattr(module, name, DependentHeadsProjection(linear, dispatch, head_width, prepared))
    try:
        yield
    finally:
        for module, name, linear in whole:
            setattr(module, name, linear)


def linear_of(
    weight: Float[Tensor, "out into"], bias: Float[Tensor, " out"] | None = None
) -> nn.Linear:
    """Make a frozen linear map with these weights: one part of a fused map."""
    # On meta, as weights that are replaced at once need no memory.
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear
