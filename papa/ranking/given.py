"""Head orders of one's own: a list of heads, a score for every head, a function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float
from torch import Tensor

from papa.errors import SpecError
from papa.ranking.seeds import TrainedLambda
from papa.spec.orders import SCORES

OwnOrder: TypeAlias = Any
"""Heads as (layer, head), the first to become constant first, of which others follow; or a score
for every head, in an array, a tensor, lists or a data frame [layers, heads], or as a function of
(layer, head): the smallest first.
"""


def named_orders(orders: Sequence[str | OwnOrder], layers: int, heads: int) -> dict[str, Any]:
    """Orders as a study's ``orders`` and ``scores`` have them: one's own are ``scores:own``,
    ``scores:own 2``, …
    """
    if isinstance(orders, str) or not isinstance(orders, Iterable):
        return {"orders": orders}
    names: list[str] = []
    scores: list[dict[str, Any]] = []
    for order in orders:
        if not isinstance(order, str):
            scores.append(
                {
                    "name": f"own {len(scores) + 1}" if scores else "own",
                    "values": scores_of(order, layers, heads),
                }
            )
            order = f"{SCORES}:{scores[-1]['name']}"
        names.append(order)
    return {"orders": names, "scores": scores}


def numbers_of(given: Any) -> Float[np.ndarray, "..."] | None:
    """The numbers of λ, a tensor, an array, lists or a data frame; None of anything else."""
    if isinstance(given, TrainedLambda):
        return given.mean
    with suppress(TypeError, ValueError):
        return np.array(
            given.detach().cpu().double().numpy() if isinstance(given, Tensor) else given,
            np.float64,
        )
    return None


def scores_of(order: OwnOrder, layers: int, heads: int) -> list[list[float]]:
    """A score for every head, the smallest of the first that becomes constant.

    Raises:
        SpecError: it is no order of these heads.
    """
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    found: Float[np.ndarray, "layers heads"] | None
    if isinstance(order, Sequence) and all(isinstance(head, tuple) for head in order):
        odd = next(
            (head for at, head in enumerate(order) if head not in every or head in order[:at]), None
        )
        if odd is not None:
            raise SpecError(
                f"orders: the list of heads holds {odd!r}, which is no head or named twice: name "
                f"each once, from (0, 0) to ({layers - 1}, {heads - 1})"
            )
        found = np.full((layers, heads), float(len(order)))
        for position, head in enumerate(order):
            found[head] = position
    else:
        if callable(order):
            order = [[order(layer, head) for head in range(heads)] for layer in range(layers)]
        found = numbers_of(order)
    if found is None or found.shape != (layers, heads) or not np.isfinite(found).all():
        what = (
            f"a {type(order).__name__}" if found is None else f"scores of shape {list(found.shape)}"
        )
        raise SpecError(
            f"orders: found {what}, expected a name, a list of (layer, head), or a finite score "
            f"for every head: [{layers}, {heads}] numbers or a function of (layer, head)"
        )
    return found.tolist()
