"""The product of the mix and its gradients, written out, against autograd in float64; λ's in every
family.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from papa.attention import mixing
from papa.attention.mixing import mixed, mixed_product
from papa.encoders.dispatch import InputDependentAttention
from tests.attention.cases import Case, random_constants
from tests.encoders.inputs import Inputs
from tests.plain import plainly, with_mix

BATCH, HEADS, WIDTH, SCALING = 4, 3, 8, 0.3
MASKS = {"none": None, "keys": (BATCH, 1, 1), "local": (BATCH, 1, 0)}
BIASES = {"none": None, "shared": 1, "own": BATCH}


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def furthest(found: list[Tensor], expected: list[Tensor]) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("columns", [5, 16, 23])
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("biased", BIASES)
def test_output_and_gradients_are_autograds(columns: int, masked: str, biased: str) -> None:
    torch.manual_seed(0)
    query, key, value = (
        drawn(BATCH, columns, HEADS * WIDTH)
        .unflatten(-1, (HEADS, WIDTH))
        .transpose(1, 2)
        .requires_grad_()
        for _ in range(3)
    )
    theta = drawn(HEADS, 1, 1).requires_grad_()
    constant = drawn(BATCH, HEADS, columns, columns).abs()
    inputs = [query, key, value, theta]
    bias, mask = None, None
    if (first := BIASES[biased]) is not None:
        bias = drawn(first, HEADS, columns, columns).requires_grad_()
        inputs.append(bias)
    if (shape := MASKS[masked]) is not None:
        mask = torch.rand(*shape[:2], shape[2] or columns, columns) > 0.3
        mask[..., 0] = True
    own = InputDependentAttention(query, key, mask, SCALING, bias)
    output = drawn(BATCH, HEADS, columns, WIDTH)

    def gradients(found: Tensor) -> list[Tensor]:
        return [found, *torch.autograd.grad(found, inputs, output, retain_graph=True)]

    share = theta.sigmoid()
    expected = gradients((constant + share * (own.probabilities() - constant)) @ value)
    assert furthest(gradients(mixed_product(own, value, constant, share)), expected) < 1e-12
    assert furthest(gradients(mixed_product(own, value, constant.flip(-1), share)), expected) > 0.1


def test_a_row_that_may_look_nowhere_spoils_no_gradient() -> None:
    """As a place without a token in a local layer, far from every token; nobody reads what it puts
    out.
    """
    query, key, value = (drawn(1, HEADS, 6, WIDTH).requires_grad_() for _ in range(3))
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 3, :] = False
    own = InputDependentAttention(query, key, mask, SCALING)
    share = torch.full((HEADS, 1, 1), 0.5, dtype=torch.float64, requires_grad=True)
    output = mixed_product(
        own, value, torch.full((1, HEADS, 6, 6), 1 / 6, dtype=torch.float64), share
    )
    read = output[:, :, [0, 1, 2, 4, 5]].square().sum()
    for gradient in torch.autograd.grad(read, [query, key, value, share]):
        assert bool(gradient.isfinite().all())
        assert float(gradient.abs().max()) > 0


def theta_gradient(states: list[Tensor], inputs: Inputs, theta: Tensor) -> Tensor:
    """Of a number that reads every layer's real tokens."""
    mask = inputs.attention_mask[:, inputs.compact().columns]
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(*states[0].shape, generator=generator, dtype=torch.float64)
    read = sum((torch.where(mask[..., None], layer, 0) * weights).sum() for layer in states)
    return torch.autograd.grad(read, [theta])[0]


@pytest.mark.parametrize("most", [mixing.MOST_COLUMNS, 0])
def test_gradients_of_theta_equal_plain(
    case: Case, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both ways: with the mix written out, and without."""
    monkeypatch.setattr(mixing, "MOST_COLUMNS", most)
    inputs, constants = case.inputs(1), random_constants(case)
    theta = torch.randn(*case.shape, dtype=torch.float64).requires_grad_()
    with plainly(
        case.modules(), with_mix(constants.matrices, theta.sigmoid(), inputs.attention_mask)
    ):
        expected = theta_gradient(case.padded(inputs), inputs, theta)

    def away(used) -> float:
        with mixed(case.encoder, used, theta):
            found = theta_gradient(case.encoder.hidden_states(inputs.compact()), inputs, theta)
        return float((found - expected).abs().max() / expected.abs().max())

    assert away(constants) < 10 * case.tolerance
    assert away(random_constants(case, seed=6)) > 0.01
