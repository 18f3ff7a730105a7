"""Linear maps in 8 bits against the same maps in float64 of what was rounded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from papa.encoders.linear import Int8Linear
from tests.encoders.test_linear import SHAPES, random_linear


def scaled(weight: Tensor, *, by_row: bool) -> Tensor:
    """The weights rounded to 8 bits with a scale for each row, or with one for all."""
    largest = weight.abs().amax(dim=1, keepdim=True) if by_row else weight.abs().max()
    return (weight.double() * 127 / largest).round() * largest / 127


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_weights_are_rounded_by_row_and_inputs_by_one_scale(
    shape: tuple[int, int], bias: bool
) -> None:
    """With exact weights what is left is the rounding of x: half a step of at most 1/127 of its
    range, an entry, times the row of absolute weights.
    """
    linear = random_linear(*shape, bias=bias)
    linear.weight.mul_(torch.logspace(-2, 2, shape[1])[:, None])
    x = torch.randn(50, shape[0])
    step = float(x.max().clamp_min(0) - x.min().clamp_max(0)) / 127
    offset = linear.bias.double() if bias else 0.0

    def within(weight: Tensor) -> bool:
        expected = x.double() @ weight.T + offset
        bound = (step * weight.abs().sum(1) + 1e-5) * 1.001
        return bool(((Int8Linear(linear)(x).double() - expected).abs() <= bound).all())

    assert within(scaled(linear.weight, by_row=True))
    if shape[1] > 1:
        assert not within(linear.weight.double().flip(0))
    if shape[0] > 100:
        found, plain = Int8Linear(linear)(x), torch.nn.functional.linear(x, *linear.parameters())
        assert 1e-3 < float((found - plain).norm() / plain.norm()) < 0.03, "8 bits, not 32, not 4"


def test_rows_of_zeros_and_no_tokens() -> None:
    linear = random_linear(16, 8)
    linear.weight[3] = 0
    x = torch.randn(2, 3, 16)
    found = Int8Linear(linear)(x)
    assert found.shape == (2, 3, 8)
    assert torch.equal(found[..., 3], linear.bias[3].expand(2, 3))
    assert Int8Linear(linear)(x[:, :0]).shape == (2, 0, 8)
