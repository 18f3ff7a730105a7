"""Head orders."""

from __future__ import annotations

import pytest
import torch

from papa.spec.orders import drawn_from, head_order

LAMBDAS = torch.tensor([[0.3, 0.1], [0.1, 0.9]])


def test_lambda_ascends_with_ties_by_layer_and_head() -> None:
    assert head_order("lambda", LAMBDAS, 2, 2) == [(0, 1), (1, 0), (0, 0), (1, 1)]
    assert head_order("lambda_reversed", LAMBDAS, 2, 2) == [(1, 1), (0, 0), (0, 1), (1, 0)]


def test_layer_orders() -> None:
    assert head_order("first_to_last", None, 2, 2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert head_order("last_to_first", None, 2, 2) == [(1, 0), (1, 1), (0, 0), (0, 1)]


def test_random_follows_from_its_seed() -> None:
    first = head_order("random", None, 4, 6, seed=1)
    assert sorted(first) == head_order("first_to_last", None, 4, 6)
    assert first == head_order("random", None, 4, 6, seed=1)
    assert first != head_order("random", None, 4, 6, seed=2)
    assert head_order("random", None, 4, 6, seed=(1, 2)) != head_order(
        "random", None, 4, 6, seed=(2, 1)
    )


def test_lambda_order_without_lambda_is_refused() -> None:
    with pytest.raises(ValueError, match="needs scores by lambda"):
        head_order("lambda", None, 2, 2)


def test_a_random_order_is_drawn_for_each_seed_and_any_other_is_shared() -> None:
    assert drawn_from("random", 7, (0, 3)) == {(0,): (7, 0), (3,): (7, 3)}
    for order in ("lambda", "lambda_reversed", "first_to_last", "last_to_first"):
        assert list(drawn_from(order, 7, (0, 3))) == [(0, 3)]
