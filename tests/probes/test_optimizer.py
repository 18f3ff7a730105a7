"""What the optimiser does to gradients, against PyTorch's own clipping and the formula of
transformers 4.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from papa.probes.training import adamw, clip_gradients
from papa.spec import ProbeSpec

SPEC = ProbeSpec(learning_rate=1e-2, batch_size=1, epochs=1)


def gradients() -> list[Tensor]:
    """Of three seeds: far above the limit of 1, below it, and none at all."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([3.0, 0.01, 0.0])
    return [
        torch.randn(3, *rest, generator=generator) * sizes.view(3, *[1] * len(rest))
        for rest in ((4, 5), (6,))
    ]


def test_every_seed_is_clipped_as_if_alone() -> None:
    clipped = gradients()
    norms = clip_gradients(clipped, 1.0)
    for seed in range(3):
        alone = [nn.Parameter(torch.zeros_like(gradient[seed])) for gradient in clipped]
        for parameter, gradient in zip(alone, gradients(), strict=True):
            parameter.grad = gradient[seed].clone()
        expected = nn.utils.clip_grad_norm_(alone, 1.0)
        torch.testing.assert_close(norms[seed], expected)
        for parameter, gradient in zip(alone, clipped, strict=True):
            torch.testing.assert_close(gradient[seed], parameter.grad)
    assert norms[0] > 1 > norms[1] > norms[2] == 0
    assert torch.equal(clipped[0][1:], gradients()[0][1:])


def test_a_limit_of_nought_clips_nothing() -> None:
    found = gradients()
    assert clip_gradients(found, 0.0)[0] > 1
    assert all(torch.equal(one, other) for one, other in zip(found, gradients(), strict=True))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_follow_the_formula_of_transformers_4(decay: float) -> None:
    """m / ((√v + ε) / √(1 - β₂ᵗ)): for a gradient as small as ε this is another step than
    PyTorch's.
    """
    spec = SPEC.model_copy(update={"weight_decay": decay})
    parameter, first, second, expected = (
        nn.Parameter(torch.ones(2)),
        torch.zeros(2),
        torch.zeros(2),
        torch.ones(2),
    )
    plain = nn.Parameter(torch.ones(2))
    ours, theirs = (
        adamw([parameter], spec, 1e-2),
        torch.optim.AdamW([plain], lr=1e-2, weight_decay=decay),
    )
    for step in range(1, 4):
        gradient = torch.tensor([1e-8, 1.0]) * step
        parameter.grad, plain.grad = gradient.clone(), gradient.clone()
        ours.step()
        theirs.step()
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        correction = math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected = expected * (1 - 1e-2 * decay) - 1e-2 * correction * first / (
            second.sqrt() + 1e-8
        )
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=0)
    assert abs(float((parameter - plain).detach()[0])) > 1e-3


def test_null_sets_no_limit() -> None:
    assert ProbeSpec.model_validate(SPEC.model_dump() | {"max_grad_norm": None}).max_grad_norm == 0
