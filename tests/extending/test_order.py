"""A head order is one entry of papa/spec/orders.py."""

from __future__ import annotations

import pytest

from papa.errors import SpecError
from papa.reporting.wording import order_label
from papa.spec.orders import HEAD_ORDERS, HeadOrder
from tests.study.test_steps import steps_of


def test_an_entry_of_the_orders_is_a_head_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second head first."""
    known = (
        "use 'lambda', 'lambda_reversed', 'first_to_last', 'last_to_first', 'random', 'confidence'"
    )
    with pytest.raises(SpecError, match=f"'orders.0' is 'every_second': {known}"):
        steps_of(orders=["every_second"])

    order = HeadOrder(
        "every second head first", lambda heads, lambdas, seed: heads[::2] + heads[1::2]
    )
    monkeypatch.setitem(HEAD_ORDERS, "every_second", order)
    steps = steps_of(orders=["every_second", "first_to_last"], fractions=[0.5])
    heads = {cell.order: step.heads({}) for cell, (step,) in steps.cells.items()}
    assert heads["every_second"] == tuple(
        (layer, head) for layer in range(6) for head in range(0, 12, 2)
    )
    assert heads["first_to_last"] == tuple(
        (layer, head) for layer in range(3) for head in range(12)
    )
    assert "rank" not in {step.stage for step in steps.steps}, "it needs no λ"
    assert order_label("every_second") == "every second head first"
