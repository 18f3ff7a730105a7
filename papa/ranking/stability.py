"""How far the head order still moves from one epoch of λ's training to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from papa.ranking.likeness import kendall_tau
from papa.spec import Order
from papa.spec.cells import partial_counts
from papa.spec.orders import head_order


@dataclass(frozen=True)
class Stability:
    """What the last epoch of λ's training changed in the order of the heads, λ ascending.

    Attributes:
        epochs: how many λ was trained for.
        kendall_tau: between the orders after the last two epochs, -1..1; None after one epoch.
        kept: input-dependent fraction → share of its constant heads that were constant an epoch
            before; empty after one epoch, and without the fractions that have no constant head or
            no other.
    """

    epochs: int
    kendall_tau: float | None
    kept: Mapping[float, float]


def stability(lambdas: Float[Any, "epochs layers heads"], fractions: Sequence[float]) -> Stability:
    """Compare the head orders after the last two epochs.

    Args:
        lambdas: λ after every epoch.
        fractions: input-dependent fractions.
    """
    epochs, layers, heads = lambdas.shape
    if epochs < 2:
        return Stability(epochs, None, {})
    before, after = (head_order("lambda", lambdas[epoch], layers, heads) for epoch in (-2, -1))
    counts = partial_counts(fractions, len(after))
    kept = {
        fraction: len({*after[:count]} & {*before[:count]}) / count
        for fraction, count in counts.items()
    }
    return Stability(epochs, kendall_tau(before, after), kept)


MOVED = 0.01
"""The deviation over heads that λ must have for its order to count: else all are still near .5."""


def is_stable(
    lambdas: Sequence[Float[Any, "layers heads"]], sets: Sequence[tuple[Order, int]]
) -> bool:
    """Whether λ has moved, and the last epoch left every set of constant heads as it was.

    Args:
        lambdas: λ after every epoch so far.
        sets: an order by λ and how many of its first heads are constant.
    """
    if len(lambdas) < 2 or lambdas[-1].std() < MOVED:
        return False
    layers, heads = lambdas[-1].shape

    def constant(epoch: int, order: Order, count: int) -> set[tuple[int, int]]:
        return set(head_order(order, lambdas[epoch], layers, heads)[:count])

    return all(constant(-1, order, count) == constant(-2, order, count) for order, count in sets)
