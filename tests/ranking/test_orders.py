"""Head orders and how many heads a fraction makes constant."""

from __future__ import annotations

import pytest
import torch

from papa.ranking import constant_count, head_order

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
    assert head_order("random", None, 4, 6, seed=(1, 2)) != head_order("random", None, 4, 6, seed=(2, 1))


def test_lambda_order_without_lambda_is_refused() -> None:
    with pytest.raises(ValueError, match="needs λ"):
        head_order("lambda", None, 2, 2)


@pytest.mark.parametrize(("fraction", "count"), [(1, 0), (0.5, 72), (0.125, 126), (0.0625, 135), (0, 144)])
def test_the_papers_fractions_of_bert_base(fraction: float, count: int) -> None:
    assert constant_count(fraction, 144) == count


def test_heads_are_whole() -> None:
    """all-MiniLM-L6-v2 has 72 heads: 1/16 of them are 4.5."""
    assert constant_count(1 / 16, 72) == 68
    assert constant_count(1 / 8, 72) == 63
