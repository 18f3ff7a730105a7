"""Shapley values against captum's, which knows nothing of PAPA's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from captum.attr import ShapleyValues, ShapleyValueSampling
from torch import Tensor, ones

from papa.ranking.scores.sets import shapley_values
from papa.ranking.value import Value
from tests.ranking.test_games import HEADS, drawn_game

DRAWS = 40


def captums(value: Value, orders: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Captum's Shapley values: over all orders of joining, or over these."""

    def forward(own: Tensor) -> float:
        return value({head for head, kept in zip(HEADS, own[0], strict=True) if kept})

    if orders is None:
        return ShapleyValues(forward).attribute(ones(1, len(HEADS)))[0].numpy()
    sampling = ShapleyValueSampling(forward)
    sampling.permutation_generator = lambda *_: orders
    return sampling.attribute(ones(1, len(HEADS)), n_samples=len(orders))[0].numpy()


def drawn_orders(seed: int) -> list[np.ndarray]:
    """Those that PAPA draws, each with its reverse."""
    drawn = np.random.default_rng(seed)
    orders = [drawn.permutation(len(HEADS)) for _ in range(DRAWS)]
    return [walk for order in orders for walk in (order, order[::-1])]


@pytest.mark.parametrize("degree", [2, 6])
def test_values_are_those_of_captum(degree: int) -> None:
    """In the same orders whatever the game, and over all orders, where pairs of orders are exact or
    within their error.
    """
    value, budget = drawn_game(degree), 2 + 2 * (len(HEADS) - 1) * DRAWS
    values, errors = shapley_values(value, HEADS, budget, seed=0, tolerance=0)
    np.testing.assert_allclose(values, captums(value, drawn_orders(0)), atol=1e-5)
    every = captums(value)
    assert (np.abs(values - every) < 4 * errors + 1e-5).all()
    another = captums(drawn_game(degree, seed=1))
    assert np.abs(values - another).max() > 0.1, "another game"
    others = captums(value, drawn_orders(1))
    assert (np.abs(values - others).max() > 0.01) == (degree == 6), "other orders"
