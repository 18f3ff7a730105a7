"""The orders in which heads become constant (paper, Sections 3.2 and 5.4). An entry of
``HEAD_ORDERS`` adds one; a method that scores heads is an entry of ``HEAD_SCORES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from papa.spec.methods import HEAD_SCORES

Head = tuple[int, int]
"""(layer, head), both from 0."""


@dataclass(frozen=True)
class HeadOrder:
    """One way to order heads.

    Attributes:
        label: its name in tables and figures.
        arrange: from all heads by (layer, head), the scores of every head and a seed, to the heads
            in the order in which they become constant.
        scored_by: what gives the scores it follows: "lambda" or a method of ``HEAD_SCORES``; None
            for the others, which are given no scores.
        differs_by_seed: whether each seed of a study has a head order of its own.
    """

    label: str
    arrange: Callable[[list[Head], Any, Any], list[Head]]
    scored_by: str | None = None
    differs_by_seed: bool = False


def _ascending(heads: list[Head], scores: Any, seed: Any) -> list[Head]:
    # Sorting is stable: ties stay in the order of (layer, head).
    return sorted(heads, key=lambda head: float(scores[head]))


def _drawn(heads: list[Head], scores: Any, seed: Any) -> list[Head]:
    return [heads[index] for index in np.random.default_rng(seed).permutation(len(heads))]


HEAD_ORDERS: dict[str, HeadOrder] = {
    "lambda": HeadOrder("λ ascending", _ascending, scored_by="lambda"),
    "lambda_reversed": HeadOrder(
        "λ descending",
        lambda heads, lambdas, seed: sorted(heads, key=lambda head: -float(lambdas[head])),
        scored_by="lambda",
    ),
    "first_to_last": HeadOrder("first layer to last", lambda heads, lambdas, seed: heads),
    "last_to_first": HeadOrder(
        "last layer to first", lambda heads, lambdas, seed: sorted(heads, key=lambda head: -head[0])
    ),
    "random": HeadOrder("random", _drawn, differs_by_seed=True),
}
SCORES, REVERSED = "scores", "reversed:"
_CODE = re.compile(r"(?!(?:scores|reversed):)([A-Za-z_]\w*):[A-Za-z_]\w*", re.ASCII)


def module_of(name: object) -> str | None:
    """Of ``module:name``, code of the user's own in a file that the command line gives with
    ``--code``: the file, without ``.py``; None where a name is of no code.
    """
    found = _CODE.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found else None


def order_named(order: str) -> HeadOrder:
    """The head order of a name: an entry of ``HEAD_ORDERS``, a method of ``HEAD_SCORES``,
    ``scores:NAME``, code of the user's own, or any of them from its end: ``reversed:…``.
    """
    if order.startswith(REVERSED):
        other = order_named(order.removeprefix(REVERSED))
        return replace(
            other,
            label=f"{other.label}, reversed",
            arrange=lambda heads, *given: other.arrange(heads, *given)[::-1],
        )
    if (name := scores_in(order)) is not None:
        return HeadOrder(
            name if module_of(name) else f"scores of {name}",
            lambda heads, lambdas, places: [heads[position] for position in places],
        )
    if order in HEAD_SCORES:
        method = HEAD_SCORES[order]
        label = f"{method.label} ascending{' (label-free)' if method.label_free else ''}"
        return HeadOrder(label, _ascending, scored_by=order)
    return HEAD_ORDERS[order]


def scores_in(order: str) -> str | None:
    """The name of the scores that an order follows, its own where it is code's; None for others."""
    order = order.removeprefix(REVERSED)
    kind, _, name = order.partition(":")
    return order if module_of(order) else name if kind == SCORES else None


def without_name(order: str) -> str:
    """The order as keys have it, whatever its scores are called: the draw tells their heads."""
    if scores_in(order) is None:
        return order
    return f"{REVERSED}{SCORES}" if order.startswith(REVERSED) else SCORES


def scored_by(order: str) -> str | None:
    """What gives the scores that the order follows: "lambda" or a method of ``HEAD_SCORES``; None
    where a study needs to compute none.
    """
    return order_named(order).scored_by


def needs_lambda(order: str) -> bool:
    """Whether the order follows from trained λ."""
    return scored_by(order) == "lambda"


def is_label_free(method: str) -> bool:
    """Whether what orders are ``scored_by`` reads no labels."""
    return method in HEAD_SCORES and HEAD_SCORES[method].label_free


def head_order(
    order: str, scores: Any, layers: int, heads: int, seed: int | Sequence[int] = 0
) -> list[Head]:
    """All heads as (layer, head), the first to become constant first.

    Args:
        scores: λ of every head [layers, heads], or what else the order is ``scored_by``; None for
            the others.
        seed: for orders that differ by seed; one number or several. Of an order by scores, its
            draw (``StudySpec.draws``).
    """
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    return order_named(order).arrange(every, scores, seed)
