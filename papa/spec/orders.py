"""The orders in which heads become constant (paper, Sections 3.2 and 5.4). An entry of
``HEAD_ORDERS`` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # specifications and plans need orders and no torch
    from jaxtyping import Float


Head = tuple[int, int]
"""(layer, head), both from 0."""


@dataclass(frozen=True)
class HeadOrder:
    """One way to order heads.

    Attributes:
        label: its name in tables and figures.
        arrange: from all heads by (layer, head), λ of every head and a seed, to the heads in the
            order in which they become constant.
        needs_lambda: whether it follows from trained λ; λ is None for the others.
        differs_by_seed: whether each seed of a study has a head order of its own.
    """

    label: str
    arrange: Callable[[list[Head], Any, Any], list[Head]]
    needs_lambda: bool = False
    differs_by_seed: bool = False


# Sorting is stable: ties stay in the order of (layer, head).
HEAD_ORDERS: dict[str, HeadOrder] = {
    "lambda": HeadOrder(
        "λ ascending",
        lambda heads, lambdas, seed: sorted(heads, key=lambda head: float(lambdas[head])),
        needs_lambda=True,
    ),
    "lambda_reversed": HeadOrder(
        "λ descending",
        lambda heads, lambdas, seed: sorted(heads, key=lambda head: -float(lambdas[head])),
        needs_lambda=True,
    ),
    "first_to_last": HeadOrder("first layer to last", lambda heads, lambdas, seed: heads),
    "last_to_first": HeadOrder(
        "last layer to first", lambda heads, lambdas, seed: sorted(heads, key=lambda head: -head[0])
    ),
    "random": HeadOrder(
        "random",
        lambda heads, lambdas, seed: [
            heads[index] for index in np.random.default_rng(seed).permutation(len(heads))
        ],
        differs_by_seed=True,
    ),
}


SCORES, REVERSED = "scores", "reversed:"


def order_named(order: str) -> HeadOrder:
    """The head order of a name: an entry of ``HEAD_ORDERS``, ``scores:NAME``, or either from its
    end: ``reversed:…``.

    Raises:
        KeyError: there is none.
    """
    if order.startswith(REVERSED):
        other = order_named(order.removeprefix(REVERSED))
        return replace(
            other,
            label=f"{other.label}, reversed",
            arrange=lambda heads, *given: other.arrange(heads, *given)[::-1],
        )
    if order.partition(":")[0] == SCORES:
        label = f"scores of {order.partition(':')[2].rpartition('/')[2]}"
        return HeadOrder(label, lambda heads, lambdas, places: [heads[place] for place in places])
    return HEAD_ORDERS[order]


def scores_in(order: str) -> str | None:
    """The name of the scores that an order follows; None for another."""
    kind, _, name = order.removeprefix(REVERSED).partition(":")
    return name if kind == SCORES else None


def without_name(order: str) -> str:
    """The order as keys have it: whatever scores are called, where their heads come first is told
    by the draw.
    """
    return order.partition(SCORES)[0] + SCORES if scores_in(order) is not None else order


def needs_lambda(order: str) -> bool:
    """Whether the order follows from trained λ."""
    return order_named(order).needs_lambda


def drawn_from(
    order: str,
    ranking_seed: int,
    seeds: tuple[int, ...],
    scores: Mapping[str, Float[Any, "layers heads"]] | None = None,
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The seeds of a study that share a head order, and the numbers that ``head_order`` draws
    theirs from.

    Orders that differ by seed are drawn for each seed of the study, from the first of
    ``ranking.seeds`` and that seed; those by scores are drawn from the places of all heads, the
    smallest score first, ties by (layer, head).

    Args:
        order: its name.
        ranking_seed: the first of ``ranking.seeds``.
        seeds: the study's.
        scores: of every head, by the name that ``scores:NAME`` gives them.
    """
    name = scores_in(order)
    if name is not None:
        return {seeds: tuple(np.argsort(np.ravel((scores or {})[name]), kind="stable").tolist())}
    return (
        {(seed,): (ranking_seed, seed) for seed in seeds}
        if order_named(order).differs_by_seed
        else {seeds: ()}
    )


def head_order(
    order: str,
    lambdas: Float[Any, "layers heads"] | None,
    layers: int,
    heads: int,
    seed: int | Sequence[int] = 0,
) -> list[Head]:
    """All heads as (layer, head), the first to become constant first.

    Args:
        order: a name, as ``order_named`` takes it.
        lambdas: λ of every head, for the orders that follow from it; None for the others.
        layers, heads: L and H.
        seed: for orders that differ by seed; one number or several. Of an order by scores, its
            draw.

    Raises:
        ValueError: the order needs λ and there is none.
    """
    if needs_lambda(order) and lambdas is None:
        raise ValueError(f"order '{order}' needs λ")
    return order_named(order).arrange(
        [(layer, head) for layer in range(layers) for head in range(heads)], lambdas, seed
    )
