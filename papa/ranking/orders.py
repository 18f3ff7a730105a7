"""The order in which heads become constant (paper, Sections 3.2 and 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from papa.spec import Order
from papa.spec.cells import Head

if TYPE_CHECKING:  # a plan needs orders and no torch
    from jaxtyping import Float
    from torch import Tensor


def needs_lambda(order: Order) -> bool:
    """Whether the order follows from trained λ."""
    return order.startswith("lambda")


def drawn_from(order: Order, ranking_seed: int, seeds: tuple[int, ...]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The seeds of a study that share a head order, and the numbers that ``head_order`` draws theirs from.

    A random order is drawn for each seed of the study, from ``ranking.seed`` and that seed; all seeds share any other.
    """
    return {(seed,): (ranking_seed, seed) for seed in seeds} if order == "random" else {seeds: ()}


def head_order(
    order: Order,
    lambdas: Float[Tensor, "layers heads"] | None,
    layers: int,
    heads: int,
    seed: int | Sequence[int] = 0,
) -> list[Head]:
    """All heads as (layer, head), the first to become constant first.

    Args:
        order: ``lambda`` ascends over all layers, ties by (layer, head); ``lambda_reversed`` descends;
            ``first_to_last`` and ``last_to_first`` go layer by layer; ``random`` is drawn from ``seed``.
        lambdas: λ of every head, for the orders that follow from it; None for the others.
        layers, heads: L and H.
        seed: for ``random``; one number or several.
    """
    all_heads = [(layer, head) for layer in range(layers) for head in range(heads)]
    if needs_lambda(order):
        if lambdas is None:
            raise ValueError(f"order '{order}' needs λ")
        sign = -1 if order == "lambda_reversed" else 1
        return sorted(all_heads, key=lambda place: (sign * float(lambdas[place]), place))
    if order == "last_to_first":
        return sorted(all_heads, key=lambda place: (-place[0], place[1]))
    if order == "random":
        return [all_heads[index] for index in np.random.default_rng(seed).permutation(len(all_heads))]
    return all_heads
