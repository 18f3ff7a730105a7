"""The orders in which heads become constant (paper, Sections 3.2 and 5.4), and the methods that
score heads, an entry each: the head with the smallest score becomes constant first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from papa.errors import SpecError, joined, meant
from papa.spec import StudySpec
from papa.spec.orders import REVERSED, Head, module_of, scores_in


@dataclass(frozen=True)
class ScoringMethod:
    """One way to score heads.

    Attributes:
        function: ``module:name`` of what computes it from ``papa.ranking.sets.Asked``, or, where
            it is ``streamed``, a mean over rows of attention, from ``papa.ranking.streamed.Rows``.
        nothing: the score of a head that is as good constant; nan where none is known.
        own_head: which tasks of a native head it scores heads of: those of words alone need no
            probe, as a probe answers with none.
        draws_nothing: whether seeds with the same rows have the same scores.
        values_sets: whether it reads the losses of sets of heads, on a sample of the rows.
        label_free, frozen_probe: whether it reads text alone, and a probe of the plain encoder.
        reads: the settings of ``ranking`` that it follows, besides ``rows`` and ``seeds``.
        least: how many ``evaluations`` an estimate takes at least, of so many heads.
    """

    label: str
    function: str
    nothing: float = math.nan
    own_head: Literal["all", "with a loss", "words"] = "all"
    label_free: bool = False
    frozen_probe: bool = False
    streamed: bool = False
    draws_nothing: bool = False
    values_sets: bool = False
    reads: tuple[str, ...] = ()
    least: Callable[[int], int] = lambda heads: 0


_AT = "papa.ranking"
_STREAMED: dict[str, Any] = {"label_free": True, "streamed": True, "draws_nothing": True}
_VALUED: dict[str, Any] = {"frozen_probe": True, "values_sets": True}
_TRAINED: dict[str, Any] = {"reads": ("epochs", "learning_rate")}
HEAD_SCORES: dict[str, ScoringMethod] = {
    "confidence": ScoringMethod("confidence", f"{_AT}.streamed:confidence", **_STREAMED),
    "variance": ScoringMethod("variance", f"{_AT}.streamed:variance", **_STREAMED),
    "distance": ScoringMethod("distance to constant", f"{_AT}.streamed:distance", **_STREAMED),
    "output_distance": ScoringMethod(
        "distance of outputs to constant", f"{_AT}.streamed:output_distance", **_STREAMED
    ),
    "first_token_attention": ScoringMethod(
        "attention on the first token", f"{_AT}.streamed:first_token_attention", **_STREAMED
    ),
    "output_norm": ScoringMethod("norm of outputs", f"{_AT}.streamed:output_norm", **_STREAMED),
    # What compares answers with themselves has no gradient there.
    "gradient": ScoringMethod(
        "gradient",
        f"{_AT}.sets:gradient",
        own_head="with a loss",
        frozen_probe=True,
        draws_nothing=True,
    ),
    # At least the value of all heads, that of none, and two pairs of orders: an error takes two.
    "shapley": ScoringMethod(
        "Shapley values",
        f"{_AT}.sets:shapley",
        0.0,
        least=lambda heads: 4 * heads - 2,
        reads=("evaluations",),
        **_VALUED,
    ),
    "greedy": ScoringMethod(
        "the steps of a greedy order",
        f"{_AT}.sets:greedy",
        draws_nothing=True,
        reads=("evaluations",),
        least=lambda heads: heads,
        **_VALUED,
    ),
    "effect": ScoringMethod("effect", f"{_AT}.sets:effect", 0.0, draws_nothing=True, **_VALUED),
    "gates": ScoringMethod("L0 gates", f"{_AT}.learned:gates", **_TRAINED),
    "causal_gates": ScoringMethod(
        "causal gates",
        "papa.native.training:train_causal_gates",
        own_head="words",
        **_TRAINED,
    ),
    "self_lambda": ScoringMethod(
        "λ that keeps hidden states", f"{_AT}.learned:self_lambda", label_free=True, **_TRAINED
    ),
}


@dataclass(frozen=True)
class HeadOrder:
    """One way to order heads: ``arrange`` takes all heads, their scores and a seed."""

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
    "first_to_last": HeadOrder("first layer to last", lambda heads, scores, seed: heads),
    "last_to_first": HeadOrder(
        "last layer to first", lambda heads, scores, seed: sorted(heads, key=lambda head: -head[0])
    ),
    "random": HeadOrder("random", _drawn, differs_by_seed=True),
}


def order_named(order: str) -> HeadOrder:
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
    if (method := HEAD_SCORES.get(order)) is not None:
        label = f"{method.label} ascending{' (label-free)' if method.label_free else ''}"
        return HeadOrder(label, _ascending, scored_by=order)
    if order not in HEAD_ORDERS:
        every = [*HEAD_ORDERS, *HEAD_SCORES]
        raise SpecError(
            f"orders: there is no order '{order}'{meant(order, every)}: give one of "
            f"{joined(every)}, scores:FILE or module:name, or reversed: and one"
        )
    return HEAD_ORDERS[order]


def scored_by(order: str) -> str | None:
    return order_named(order).scored_by


def head_order(
    order: str, scores: Any, layers: int, heads: int, seed: int | Sequence[int] = 0
) -> list[Head]:
    """All heads, the first to become constant first; ``seed`` is what it is drawn from."""
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    return order_named(order).arrange(every, scores, seed)


def draws_of(study: StudySpec, order: str) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The seeds of the study that share a head order, and what ``head_order`` draws theirs from."""
    if (name := scores_in(order)) is not None:
        (values,) = (scores.values for scores in study.scores if scores.name == name)
        return {study.probe_seeds: tuple(np.argsort(np.ravel(values), kind="stable").tolist())}
    if order_named(order).differs_by_seed:
        return {(seed,): (study.ranking_seeds[0], seed) for seed in study.probe_seeds}
    return {study.probe_seeds: ()}
