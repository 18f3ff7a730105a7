"""The orders in which heads become constant (paper, Sections 3.2 and 5.4), and the methods that
score heads. An entry of ``HEAD_ORDERS`` adds an order; one of ``HEAD_SCORES`` a method, and an
order with it: the head with the smallest score becomes constant first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from papa.spec.values import one_of

Head = tuple[int, int]
"""(layer, head), both from 0."""


@dataclass(frozen=True)
class ScoringMethod:
    """One way to score heads.

    Attributes:
        label: its name in messages, tables and figures.
        function: ``module:name`` of what computes it, as ``papa.ranking.scores.asked`` says, or
            ``papa.ranking.scores.streamed``.
        nothing: the score of a head that is as good constant; nan where none is known.
        own_head: which tasks of a model's own head it scores heads of; what compares answers with
            themselves has no gradient there.
        label_free: whether it reads text alone; others read labels too.
        frozen_probe: whether it reads the task's probe, trained on the encoder as it is.
        streamed: whether it is a mean over rows of attention matrices; these share a pass.
        reads: the settings of ``ranking`` that it follows, besides ``rows`` and ``seeds``.
        least: how many ``evaluations`` an estimate takes at least, of so many heads.
    """

    label: str
    function: str
    nothing: float = math.nan
    own_head: Literal["all", "with a loss", "none"] = "all"
    label_free: bool = False
    frozen_probe: bool = False
    streamed: bool = False
    reads: tuple[str, ...] = ()
    least: Callable[[int], int] = lambda heads: 0


_AT = "papa.ranking.scores"
_STREAMED = {
    "confidence": "confidence",
    "variance": "variance",
    "distance": "distance to constant",
    "output_distance": "distance of outputs to constant",
}
_VALUED: dict[str, Any] = {"frozen_probe": True, "reads": ("evaluations",)}
_TRAINED: dict[str, Any] = {"reads": ("epochs", "learning_rate")}
HEAD_SCORES: dict[str, ScoringMethod] = {
    **{
        name: ScoringMethod(label, f"{_AT}.streamed:{name}", label_free=True, streamed=True)
        for name, label in _STREAMED.items()
    },
    "gradient": ScoringMethod(
        "gradient", f"{_AT}.gradient:gradient", own_head="with a loss", frozen_probe=True
    ),
    # At least the value of all heads, that of none, and two pairs of orders: an error takes two.
    "shapley": ScoringMethod(
        "Shapley values", f"{_AT}.sets:shapley", 0.0, least=lambda heads: 4 * heads - 2, **_VALUED
    ),
    "greedy": ScoringMethod(
        "the steps of a greedy order", f"{_AT}.sets:greedy", least=lambda heads: heads, **_VALUED
    ),
    "effect": ScoringMethod("effect", f"{_AT}.sets:effect", 0.0, frozen_probe=True),
    "gates": ScoringMethod("L0 gates", f"{_AT}.gates:gates", own_head="none", **_TRAINED),
    "self_lambda": ScoringMethod(
        "λ that keeps hidden states",
        f"{_AT}.self_lambda:self_lambda",
        label_free=True,
        **_TRAINED,
    ),
}


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
        "λ descending", lambda heads, scores, seed: _ascending(heads, -scores, seed), "lambda"
    ),
    "first_to_last": HeadOrder("first layer to last", lambda heads, scores, seed: heads),
    "last_to_first": HeadOrder(
        "last layer to first", lambda heads, scores, seed: sorted(heads, key=lambda head: -head[0])
    ),
    "random": HeadOrder("random", _drawn, differs_by_seed=True),
}
SCORES, REVERSED = "scores", "reversed:"
_CODE = re.compile(r"(?!(?:scores|reversed):)([A-Za-z_]\w*):[A-Za-z_]\w*", re.ASCII)


def module_of(name: object) -> str | None:
    """Of ``module:name``, code of the user's own, the module; None where a name is of no code."""
    found = _CODE.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found else None


def scores_in(order: str) -> str | None:
    """The name of the scores that an order follows, its own where it is code's; None for others."""
    order = order.removeprefix(REVERSED)
    kind, _, name = order.partition(":")
    return order if module_of(order) else name if kind == SCORES else None


def without_name(order: str) -> str:
    """The order as keys have it, whatever its scores are called: the draw tells their heads."""
    reverse = REVERSED if order.startswith(REVERSED) else ""
    return order if scores_in(order) is None else f"{reverse}{SCORES}"


def _known(order: Any) -> Any:
    if not isinstance(order, str) or scores_in(order) is None:
        bare = order.removeprefix(REVERSED) if isinstance(order, str) else order
        one_of((*HEAD_ORDERS, *HEAD_SCORES), bare)
    return "lambda_reversed" if order == f"{REVERSED}lambda" else order


Order = Annotated[str, BeforeValidator(_known)]
"""An entry of ``HEAD_ORDERS``, a method of ``HEAD_SCORES``, ``scores:NAME``, code of the user's
own, or any of them from its end: ``reversed:…``.
"""


def order_named(order: str) -> HeadOrder:
    """The head order of a name."""
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
            lambda heads, scores, places: [heads[position] for position in places],
        )
    if order in HEAD_SCORES:
        method = HEAD_SCORES[order]
        label = f"{method.label} ascending{' (label-free)' if method.label_free else ''}"
        return HeadOrder(label, _ascending, scored_by=order)
    return HEAD_ORDERS[order]


def scored_by(order: str) -> str | None:
    """``HeadOrder.scored_by`` of an order."""
    return order_named(order).scored_by


def head_order(
    order: str, scores: Any, layers: int, heads: int, seed: int | Sequence[int] = 0
) -> list[Head]:
    """All heads as (layer, head), the first to become constant first.

    Args:
        scores: λ of every head [layers, heads], or what else the order is ``scored_by``, if any.
        seed: what an order that differs by seed, or by scores, is drawn from (``StudySpec.draws``).
    """
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    return order_named(order).arrange(every, scores, seed)
