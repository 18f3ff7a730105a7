"""Scores of heads and head orders that a user supplies."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas
from jaxtyping import Float, Shaped
from torch import Tensor

from papa.errors import SpecError, joined
from papa.spec.orders import SCORES, Head

CustomOrder: TypeAlias = (
    pandas.DataFrame
    | Tensor
    | np.ndarray
    | Sequence[Head]
    | Sequence[Sequence[float]]
    | Callable[[int, int], float]
)
"""Heads as (layer, head), the first to become constant first; heads that are not listed follow. Or
a score for every head, the smallest first: a frame as ``papa.head_scores`` gives it, numbers
[layers, heads], or a function of (layer, head).
"""


def named_orders(
    orders: Sequence[str | CustomOrder] | pandas.DataFrame, layers: int, heads: int
) -> dict[str, Any]:
    """Return orders as a study's ``orders`` and ``scores`` have them: custom ones are ``scores:``
    and the function's name, or ``scores:custom``, ``scores:custom 2``, … A single name is returned
    as ``{"orders": name}``, without scores.
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
            namesakes = sum(entry["name"].partition(" ")[0] == name for entry in scores)
            if namesakes:
                name = f"{name} {namesakes + 1}"
            scores.append({"name": name, "values": scores_of(order, layers, heads)})
            order = f"{SCORES}:{name}"
        names.append(order)
    return {"orders": names, "scores": scores}


def scores_by_head(values: object) -> Float[np.ndarray, "layers heads"]:
    """Return a finite score for every head, from a frame or from numbers [layers, heads]. Raises a
    SpecError where ``values`` are neither.
    """
    plain = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values
    if isinstance(values, pandas.DataFrame):
        plain = _scores_in_frame(values)
    try:
        numbers = np.array(plain, np.float64)
    except (TypeError, ValueError):
        raise _no_scores(f"a {type(values).__name__} whose scores are not numbers") from None
    if numbers.ndim != 2 or not numbers.size:
        raise _no_scores(f"a {type(values).__name__} of shape {list(numbers.shape)}")
    if not np.isfinite(numbers).all():
        raise _no_scores("numbers that are not finite among them")
    return numbers


def _scores_in_frame(frame: pandas.DataFrame) -> Shaped[np.ndarray, "layers heads"]:
    if not {"layer", "head", "score"} <= set(frame):
        raise _no_scores(f"a data frame with the columns {joined(map(str, frame)) or 'none'}")
    methods = frame["method"].unique() if "method" in frame else ()
    if len(methods) > 1:
        description = f"scores by {joined(map(str, methods))} in one frame"
        raise _no_scores(description, ": give those of one method")
    frame = frame.sort_values(["layer", "head"])
    layers = frame["layer"].unique()
    shape = len(layers), frame["head"].nunique()
    heads = np.argwhere(np.ones(shape))
    # Some layers may have no attention.
    heads[:, 0] = layers[heads[:, 0]]
    if not np.array_equal(frame[["layer", "head"]], heads):
        raise _no_scores(f"a data frame of {len(frame)} rows, not one for each head of each layer")
    return frame["score"].to_numpy().reshape(shape)


def _no_scores(description: str, advice: str = "") -> SpecError:
    return SpecError(
        f"scores of heads: found {description}, expected a row for each head, as papa.head_scores "
        f"gives them, or finite numbers [layers, heads]{advice}"
    )


def scores_of(order: CustomOrder, layers: int, heads: int) -> list[list[float]]:
    """Return a score for every head, the smallest of the first that becomes constant."""
    if isinstance(order, Sequence) and all(isinstance(head, tuple) for head in order):
        scores = np.full((layers, heads), float(len(order)))
        for position, head in enumerate(order):
            if head not in [*np.ndindex(layers, heads)] or head in order[:position]:
                raise SpecError(
                    f"orders: the list of heads holds {head!r}, which is no head or occurs "
                    f"twice: give each head once, from (0, 0) to ({layers - 1}, {heads - 1})"
                )
            scores[head] = position
        return scores.tolist()
    if callable(order):
        order = [[order(layer, head) for head in range(heads)] for layer in range(layers)]
    scores = scores_by_head(order)
    if scores.shape != (layers, heads):
        raise SpecError(
            f"scores of heads: found {scores.shape[0]} layers of {scores.shape[1]} heads, "
            f"expected {layers} layers of {heads} heads: give those of this model"
        )
    return scores.tolist()
