"""Scores of heads and head orders that somebody gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas
from jaxtyping import Float
from torch import Tensor

from papa.errors import SpecError, joined
from papa.spec.orders import SCORES

OwnOrder: TypeAlias = Any
"""Heads as (layer, head), the first to become constant first, of which others follow; or a score
for every head, the smallest first: a frame as ``papa.head_scores`` gives it, numbers [layers,
heads], or a function of (layer, head).
"""


def named_orders(orders: Sequence[str | OwnOrder], layers: int, heads: int) -> dict[str, Any]:
    """Orders as a study's ``orders`` and ``scores`` have them: one's own are ``scores:`` and the
    function's name, or ``scores:custom``, ``scores:custom 2``, …
    """
    if isinstance(orders, str) or not isinstance(orders, Iterable):
        return {"orders": orders}
    orders = [orders] if isinstance(orders, pandas.DataFrame) else orders
    names: list[str] = []
    scores: list[dict[str, Any]] = []
    for order in orders:
        if not isinstance(order, str):
            name = getattr(order, "__name__", "custom")
            name = name if name.isidentifier() else "custom"
            if alike := sum(one["name"].partition(" ")[0] == name for one in scores):
                name = f"{name} {alike + 1}"
            scores.append({"name": name, "values": scores_of(order, layers, heads)})
            order = f"{SCORES}:{name}"
        names.append(order)
    return {"orders": names, "scores": scores}


def score_of_each(given: Any) -> Float[np.ndarray, "layers heads"]:
    """A finite score for every head, from a frame or from numbers [layers, heads]."""
    what = f"a {type(given).__name__}"
    if isinstance(given, pandas.DataFrame):
        if not {"layer", "head", "score"} <= set(given):
            raise _no_scores(f"a data frame with the columns {joined(map(str, given)) or 'none'}")
        if "method" in given and (methods := list(given["method"].unique()))[1:]:
            one = ": give those of one method"
            raise _no_scores(f"scores by {joined(map(str, methods))} in one frame", one)
        what = f"a data frame of {len(given)} rows, not one for each head of each layer"
        given = given.sort_values(["layer", "head"])
        layers = given["layer"].unique()
        shape = len(layers), given["head"].nunique()
        heads = np.argwhere(np.ones(shape))
        # Some layers may have no attention.
        heads[:, 0] = layers[heads[:, 0]]
        whole = np.array_equal(given[["layer", "head"]], heads)
        given = given["score"].to_numpy(np.float64).reshape(shape) if whole else None
    try:
        held = given.detach().cpu().double().numpy() if isinstance(given, Tensor) else given
        found: Float[np.ndarray, "..."] = np.array(held, np.float64)
    except (TypeError, ValueError):
        raise _no_scores(what) from None
    if found.ndim != 2 or not found.size:
        raise _no_scores(f"numbers of shape {list(found.shape)}" if found.ndim else what)
    if not np.isfinite(found).all():
        raise _no_scores("numbers that are not finite among them")
    return found


def _no_scores(found: str, advice: str = "") -> SpecError:
    return SpecError(
        f"scores of heads: found {found}, expected a row for each head, as papa.head_scores gives "
        f"them, or finite numbers [layers, heads]{advice}"
    )


def scores_of(order: OwnOrder, layers: int, heads: int) -> list[list[float]]:
    """A score for every head, the smallest of the first that becomes constant."""
    if isinstance(order, Sequence) and all(isinstance(head, tuple) for head in order):
        found = np.full((layers, heads), float(len(order)))
        for position, head in enumerate(order):
            if head not in [*np.ndindex(layers, heads)] or head in order[:position]:
                raise SpecError(
                    f"orders: the list of heads holds {head!r}, which is no head or occurs "
                    f"twice: give each head once, from (0, 0) to ({layers - 1}, {heads - 1})"
                )
            found[head] = position
        return found.tolist()
    if callable(order):
        order = [[order(layer, head) for head in range(heads)] for layer in range(layers)]
    found = score_of_each(order)
    if found.shape != (layers, heads):
        raise SpecError(
            f"orders: found scores of {found.shape[0]} layers of {found.shape[1]} heads, expected "
            f"{layers} layers of {heads}: give those of this model"
        )
    return found.tolist()
