"""Head orders compared, every two of them: their scores, and how alike they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas

from papa.ranking.seeds import kendall_tau, kept_in_common
from papa.reporting.columns import ORDER_COLUMNS
from papa.reporting.summary import LINE, measured
from papa.scores.intervals import Interval, Measured, clipped, difference, holm, joint, p_value
from papa.spec.orders import Head

GROUP = LINE[:3]
"""What orders are compared within: encoder, task, constants."""
BETTER, WORSE, NOT_TOLD = "better", "worse", "cannot be told apart"
"""What can be said of an order's mean score beside another's."""
_LEVEL = 0.05
_RANDOM = "random"


@dataclass(frozen=True)
class FoundOrder:
    """A head order of one encoder on one task, by the study's seed; its seconds of work, over all
    ranking seeds, and its passes over examples are None where nothing was computed for it, or
    another order counts it.
    """

    by_seed: Mapping[int, Sequence[Head]]
    seconds: float | None = None
    evaluations: int | None = None


FoundOrders = Mapping[tuple[str, str], Mapping[str, FoundOrder]]
"""By (encoder, task), then by the order's name."""


@dataclass(frozen=True)
class OrdersCompared:
    """The head orders of a study, every two of them compared.

    Attributes:
        pairs: a row for every two orders at each fraction at which some heads are constant and
            others not, and one for their mean scores over these fractions, with no fraction;
            columns ``ORDER_COLUMNS``.
        scores: the mean score over these fractions, by (encoder, task, constants, order).
    """

    pairs: pandas.DataFrame
    scores: Mapping[tuple[str, ...], Interval]
    found: FoundOrders

    @property
    def means(self) -> pandas.DataFrame:
        """The rows of mean scores over fractions."""
        return self.pairs[self.pairs["fraction"].isna()]

    @property
    def first(self) -> str:
        """The study's first order."""
        return str(self.pairs["order"].iloc[0])

    def each_way(self) -> pandas.DataFrame:
        """Each order's mean score less every other's, and what can be said of it."""
        means = self.means
        ends = {"difference": -means["difference"], "low": -means["high"], "high": -means["low"]}
        turned = means.assign(order=means["other"], other=means["order"], **ends)
        rows = pandas.concat([means, turned], ignore_index=True)
        told = np.where(rows["difference"] > 0, BETTER, WORSE)
        return rows.assign(verdict=np.where(rows["beyond_chance"], told, NOT_TOLD))

    def against_first(self) -> pandas.DataFrame:
        """Each order's mean score less that of the study's first."""
        rows = self.each_way()
        columns = [*GROUP, "order", "difference", "low", "high", "verdict"]
        return rows.loc[rows["other"] == self.first, columns]


def compare_orders(results: pandas.DataFrame, found: FoundOrders) -> OrdersCompared | None:
    """Compare every two head orders of each encoder, task and kind of constants; None where there
    is one, or no fraction at which orders differ.

    Of one encoder, task and kind of constants, Holm's rule goes over the orders that are compared
    with random ones, which asks whether an order knows anything, and apart over all other pairs. Of
    orders that are not among ``found`` nobody knows how alike they are.
    """
    between = results["constant_heads"].between(0, results["heads"], inclusive="neither")
    rows: list[dict[str, Any]] = []
    scores: dict[tuple[str, ...], Interval] = {}
    for group, cells in results[between].groupby(GROUP, sort=False):
        by_order = {
            str(order): {at: measured(cell) for at, cell in own.groupby("fraction", sort=False)}
            for order, own in cells.groupby("order", sort=False)
        }
        if len(by_order) < 2:
            continue
        means = {order: _mean(list(own.values())) for order, own in by_order.items()}
        metric = cells["metric"].iloc[0]
        scores |= {(*group, order): clipped(metric, joint(mean)) for order, mean in means.items()}
        constant = cells.groupby("fraction", sort=False)["constant_heads"].first().to_dict()
        pairs, heads = list(combinations(means, 2)), cells["heads"].iloc[0]
        p_values = {pair: p_value(*(means[order] for order in pair)) for pair in pairs}
        adjusted = _adjusted(p_values)
        for first, other in pairs:
            named = {**dict(zip(GROUP, group, strict=True)), "order": first, "other": other}
            known = found.get(group[:2], {})
            both = known.get(first), known.get(other)
            rows.append(
                {
                    **named,
                    **_ends(means[first], means[other]),
                    "p": p_values[first, other],
                    "p_holm": adjusted[first, other],
                    "beyond_chance": adjusted[first, other] < _LEVEL,
                    "kendall_tau": _over_seeds(*both, kendall_tau),
                }
            )
            rows += [
                {
                    **named,
                    "fraction": at,
                    **_ends(by_order[first][at], by_order[other][at]),
                    "kept_by_both": _over_seeds(*both, kept_in_common, count),
                    "kept_by_chance": 1 - count / heads,
                }
                for at, count in constant.items()
            ]
    if not rows:
        return None
    pairs_found = pandas.DataFrame(rows, columns=list(ORDER_COLUMNS))
    pairs_found["beyond_chance"] = pairs_found["beyond_chance"].eq(True)
    return OrdersCompared(pairs_found, scores, found)


def _adjusted(p_values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """By Holm's rule in two families: pairs with random orders, and all others."""
    found: dict[tuple[str, str], float] = {}
    for with_random in (True, False):
        own = [pair for pair in p_values if (_RANDOM in pair) == with_random]
        found |= dict(zip(own, holm([p_values[pair] for pair in own]), strict=True))
    return found


def _mean(scores: Sequence[Measured]) -> Measured:
    """The mean of scores on the same examples, by seed."""
    seeds = scores[0].scores
    means = {seed: float(np.mean([one.scores[seed] for one in scores])) for seed in seeds}
    influence = {seed: np.mean([one.influence[seed] for one in scores], axis=0) for seed in seeds}
    return Measured(means, influence, scores[0].unit)


def _ends(first: Measured, other: Measured) -> dict[str, float]:
    lost = difference(first, other, unseen=False)
    if lost.low == lost.high:
        # Examples that all agree say little of those that nobody saw.
        lost = difference(first, other)
    return {"difference": lost.mean, "low": lost.low, "high": lost.high}


def _over_seeds(
    first: FoundOrder | None,
    other: FoundOrder | None,
    likeness: Callable[..., float],
    *arguments: int,
) -> float:
    """The mean likeness of two orders over the seeds; nan where one is not known."""
    if first is None or other is None:
        return math.nan
    pairs = [(order, other.by_seed[seed]) for seed, order in first.by_seed.items()]
    return float(np.mean([likeness(*pair, *arguments) for pair in pairs]))
