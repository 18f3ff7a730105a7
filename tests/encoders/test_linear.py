"""Frozen linear maps in bfloat16 and in 8 bits, against the same maps in float64 of what was
rounded.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from papa.encoders.linear import FrozenLinear, FrozenLinears
from papa.encoders.precision import has_bfloat16
from tests.encoders.models import MODELS, random_model

needs_bfloat16 = pytest.mark.skipif(
    not has_bfloat16(), reason="this CPU does not multiply in bfloat16"
)
SHAPES = [(384, 384), (384, 1536), (1536, 384), (13, 7), (5, 1)]
ROUNDING = 2.0**-8
"""Bfloat16 keeps eight bits: rounding to it changes a number by 2⁻⁸ of itself at most."""


def random_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(inputs + outputs)
    return nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)


def exactly(linear: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """x Wᵀ + b in float64 of operands rounded to bfloat16, and the same of absolute values: what
    errors scale with.
    """
    rounded, weight = x.bfloat16().double(), linear.weight.bfloat16().double()
    bias = 0.0 if linear.bias is None else linear.bias.double()
    return rounded @ weight.T + bias, rounded.abs() @ weight.T.abs() + abs(bias)


@needs_bfloat16
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", [1, 3, 100, 600])
@pytest.mark.parametrize("bias", [True, False])
def test_only_operands_and_result_are_rounded(
    shape: tuple[int, int], tokens: int, bias: bool
) -> None:
    """The result is rounded once; sums in between are float32, whose error is some 2⁻²⁴ of the sum
    of absolutes.
    """
    linear = random_linear(*shape, bias=bias)
    x = torch.randn(tokens, shape[0])
    expected, absolutes = exactly(linear, x)
    bound = ROUNDING * expected.abs() + shape[0] * 2.0**-24 * absolutes
    found = FrozenLinear(linear)(x)
    assert found.dtype == torch.bfloat16
    assert bool(((found.double() - expected).abs() <= bound).all())
    unrounded = x.double() @ linear.weight.double().T
    if bias:
        unrounded += linear.bias.double()
    assert found.numel() < 100 or not bool(((found.double() - unrounded).abs() <= bound).all())


@needs_bfloat16
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_pass_through_the_same_weights(shape: tuple[int, int]) -> None:
    linear = random_linear(*shape)
    x = torch.randn(40, shape[0], requires_grad=True)
    of_outputs = torch.randn(40, shape[1])
    (found,) = torch.autograd.grad(FrozenLinear(linear)(x), x, of_outputs.bfloat16())
    weight = linear.weight.bfloat16().double()
    expected = of_outputs.bfloat16().double() @ weight
    absolutes = of_outputs.bfloat16().double().abs() @ weight.abs()
    bound = ROUNDING * expected.abs() + shape[1] * 2.0**-24 * absolutes
    assert found.dtype == torch.float32
    assert bool(((found.double() - expected).abs() <= bound).all())
    assert not bool(((found.double() - expected.flip(0)).abs() <= bound).all())


@needs_bfloat16
def test_any_shape_of_tokens_and_any_floating_dtype() -> None:
    frozen = FrozenLinear(random_linear(16, 8))
    x = torch.randn(2, 3, 16)
    expected = frozen(x.flatten(0, 1)).view(2, 3, 8)
    assert torch.equal(frozen(x), expected)
    assert torch.equal(frozen(x.bfloat16()), expected)
    assert torch.equal(frozen(x.transpose(0, 1)), expected.transpose(0, 1))
    assert frozen(x[:0]).shape == (0, 3, 8)


@needs_bfloat16
@pytest.mark.parametrize("variant", sorted(MODELS))
def test_maps_of_all_families_stand_in_and_leave_no_trace(variant: str) -> None:
    model = random_model(variant).float()
    names = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)
    }
    inside = {name for name in names if any(part.isdigit() for part in name.split("."))}
    assert inside
    frozen = FrozenLinears(model)
    with frozen.in_use():
        assert {
            name for name, linear in names.items() if isinstance(linear.forward, FrozenLinear)
        } == inside
        with frozen.in_use():
            pass
        assert all(isinstance(names[name].forward, FrozenLinear) for name in inside)
    assert not any("forward" in linear.__dict__ for linear in names.values())
