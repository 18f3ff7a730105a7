"""The orders in which the heads of an in-memory model, or groups of them, become constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pandas
from jaxtyping import Float

from papa.errors import SpecError, joined, meant
from papa.native.passes import NativeHead
from papa.ranking.external_scores import CustomOrder, named_orders
from papa.ranking.head_scores import HeadScores
from papa.ranking.kv_groups import group_scores
from papa.ranking.orders import HEAD_ORDERS, SCORING_METHODS, head_order, scoring_method
from papa.scores.custom import RequestedScore
from papa.spec.orders import REVERSED, Head, Unit, scores_in

METHODS = ("lambda", *(name for name, method in SCORING_METHODS.items() if method.in_memory))
"""That score the heads of an in-memory model."""


def check_unit(unit: str) -> None:
    """Raise an error unless ``unit`` names a unit of heads."""
    if unit not in get_args(Unit):
        raise SpecError(
            f"unit is {unit!r}{meant(unit, get_args(Unit))}: give one of {joined(get_args(Unit))}"
        )


def reads_score(method: str, score: RequestedScore) -> bool:
    """Return whether a method follows the loss of a score: λ, which needs gradients, follows no
    function.
    """
    if method == "lambda":
        return not callable(score)
    return not SCORING_METHODS[method].label_free


@dataclass(frozen=True)
class UnitOrders:
    """Orders of the units of a native head, by the index of their layer.

    Attributes:
        names: As tables call them.
        external: The scores that a user supplied, by name.
        size: (layers with attention, units in each).
    """

    names: list[str]
    external: Mapping[str, Float[np.ndarray, "layers units"]]
    size: tuple[int, int]

    @classmethod
    def from_requested(cls, orders: Sequence[str | CustomOrder], native: NativeHead) -> UnitOrders:
        """Check and name the orders that a user requested. Raises a SpecError where there is no
        such order for this model, or its scores do not fit.
        """
        shape = (native.layers.layer_count, native.heads_per_layer)
        if len(native.layers.numbers) < shape[0]:
            orders = [
                _of_all_layers(order, shape) if isinstance(order, pandas.DataFrame) else order
                for order in orders
            ]
        document = named_orders(orders, *shape)
        external: dict[str, Float[np.ndarray, "layers units"]] = {}
        for scores in document.get("scores", ()):
            by_head = np.array(scores["values"])[native.layers.numbers]
            external[scores["name"]] = group_scores(by_head, native.heads_per_unit)
        known = [*HEAD_ORDERS, *METHODS[1:]]
        for order in document["orders"]:
            name = order.removeprefix(REVERSED)
            scores_name = scores_in(name)
            if scores_name is not None and scores_name not in external:
                raise SpecError(f"orders: '{name}' names a file: give papa.load_scores(path)")
            if scores_name is None and name not in known:
                near = f"orders: there is no order '{name}' for this model{meant(name, known)}"
                raise SpecError(
                    f"{near}: give one of {joined(known)}, or what papa.head_scores gives"
                )
        return cls(document["orders"], external, native.size)

    @property
    def methods(self) -> list[str]:
        """The methods whose scores the orders follow, each once."""
        return list(dict.fromkeys(filter(None, map(scoring_method, self.names))))

    def arranged(
        self, order: str, scores: Mapping[str, HeadScores], seeds: tuple[int, int]
    ) -> list[Head]:
        """Return all units, the first to become constant first; random orders are drawn from the
        seeds of ranking and of the probe.
        """
        name = scores_in(order)
        if name is not None:
            positions = np.argsort(np.ravel(self.external[name]), kind="stable").tolist()
            return head_order(order, None, *self.size, positions)
        method = scoring_method(order)
        values = scores[method].mean if method else None
        return head_order(order, values, *self.size, seeds)


def _of_all_layers(
    scores: pandas.DataFrame, shape: tuple[int, int]
) -> Float[np.ndarray, "layers heads"]:
    """Return the score of each head of a frame; layers without attention have 0, which nobody
    reads.
    """
    values = np.zeros(shape)
    values[scores["layer"], scores["head"]] = scores["score"]
    return values
