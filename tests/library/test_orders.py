"""Head orders of one's own in ``papa.measure``: the same heads however they are given, by name in
its tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import papa
from papa.library.encoder import TextEncoder
from papa.ranking.given import named_orders
from papa.ranking.seeds import HeadScores

pytestmark = pytest.mark.unchecked

SCORES = np.arange(6.0).reshape(2, 3)[::-1].copy()  # the second layer first
HEADS = [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    "order",
    [
        SCORES,
        torch.tensor(SCORES),
        SCORES.tolist(),
        HeadScores(SCORES[None]).frame("mine").sample(frac=1, random_state=0),
        HEADS,
        HEADS[:3],
        lambda layer, head: -layer,
    ],
    ids=["array", "tensor", "lists", "frame", "heads", "first heads", "function"],
)
def test_every_form_is_the_same_order(order: Any) -> None:
    found = named_orders(["lambda", order, order], 2, 3)
    assert found["orders"] == ["lambda", "scores:own", "scores:own 2"]
    for one in found["scores"]:
        assert papa.constant_heads(one["values"], 0) == tuple(HEADS)


def test_a_measurement_knows_its_own_orders(encoder: TextEncoder, reviews: dict[str, Any]) -> None:
    task = papa.Task(text="review", label="verdict", learning_rate=5e-4, epochs=1)
    last = [(1, head) for head in range(12)]
    found = papa.measure(
        encoder,
        reviews,
        task,
        orders=["last_to_first", last, lambda layer, head: layer],
        fractions=[1, 0.5],
        seeds=[0, 1],
        progress=False,
    )
    scores = (
        found.to_pandas().query("fraction == 0.5").groupby("order", sort=False)["score"].agg(list)
    )
    assert scores.index.tolist() == ["last_to_first", "scores:own", "scores:own 2"]
    assert scores["scores:own"] == scores["last_to_first"] != scores["scores:own 2"]
    assert "scores of own 2" in found.table
