"""What an epoch of λ's training changed in the order of the heads."""

from __future__ import annotations

import math

import pytest
import torch

from papa.ranking.seeds import Stability, is_stable, stability

FIRST = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
SWAPPED = torch.tensor([[0.1, 0.3], [0.2, 0.4]])


def test_the_last_two_epochs_are_compared() -> None:
    found = stability(torch.stack([FIRST.flip(0, 1), FIRST, SWAPPED]), (1.0, 0.75, 0.5, 0.25, 0.0))
    assert found.epochs == 3
    # Of six pairs of heads one changed places.
    assert found.kendall_tau == pytest.approx(4 / 6)
    assert found.kept == {0.75: 1.0, 0.5: 0.5, 0.25: 1.0}


def test_numpy_gives_the_same() -> None:
    lambdas = torch.stack([FIRST, SWAPPED])
    assert stability(lambdas.numpy(), (0.5,)) == stability(lambdas, (0.5,))


def test_one_epoch_has_nothing_to_be_compared_with() -> None:
    assert stability(FIRST[None], (0.5,)) == Stability(1, None, {})


def test_reversed_orders_are_as_unlike_as_can_be() -> None:
    tau = stability(torch.stack([FIRST, 1 - FIRST]), ()).kendall_tau
    assert tau is not None
    assert math.isclose(tau, -1)


def test_training_has_settled_when_every_set_stays() -> None:
    assert is_stable([FIRST, SWAPPED], [("lambda", 1), ("lambda", 3), ("lambda_reversed", 1)])
    assert not is_stable([FIRST, SWAPPED], [("lambda", 1), ("lambda", 2)])
    assert not is_stable([FIRST, SWAPPED], [("lambda_reversed", 2)])
    assert not is_stable([FIRST], [("lambda", 1)])


def test_an_order_that_has_not_moved_is_not_stable() -> None:
    start = torch.full((2, 2), 0.5)
    near = start + 1e-3 * FIRST
    for lambdas in ([start, start], [near, near]):
        assert not is_stable(lambdas, [("lambda", 2)])
    assert is_stable([start + 0.1 * FIRST] * 2, [("lambda", 2)])
