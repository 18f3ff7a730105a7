"""Head orders compared, every two of them: their scores, how alike they are, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any

import numpy as np
import pandas

from papa.ranking.seeds import kendall_tau, kept_in_common
from papa.reporting.columns import ORDER_COLUMNS
from papa.reporting.figures.chart import Chart, told, told_all, verdict_rows
from papa.reporting.summary import LINE, measured
from papa.reporting.wording import (
    NOTHING,
    WrittenTable,
    chance_label,
    fraction_label,
    joined,
    names_of,
    order_label,
    score_label,
    varying,
)
from papa.scores.intervals import (
    Interval,
    Measured,
    clipped,
    deviation_of_lists,
    difference,
    holm,
    joint,
    p_value,
)
from papa.spec.orders import Head

GROUP = LINE[:3]
"""What orders are compared within: encoder, task, constants."""
BETTER, WORSE, NOT_TOLD = "better", "worse", "cannot be told apart"
"""What can be said of an order's mean score beside another's."""
_LEVEL, _RANDOM = 0.05, "random"
_BEYOND = "*"
_LIKENESS_NOTE = (
    f"{_BEYOND}: beyond chance. Kendall's τ of the two orders is about 0 by chance. Both keep: of "
    "the heads that stay input-dependent, the share that does by both orders; brackets hold what "
    "random orders share. Where an order differs by seed these are means over seeds."
)
_COST_NOTE = (
    f"{_BEYOND}: beyond chance. Better than, worse than: how many other orders, beyond chance. "
    "Seconds of work and evaluations (passes over the examples; of λ its epochs) are those of the "
    "ranking, over all its seeds; –: nothing was computed for this order, or nothing beyond what "
    "another order's row counts."
)


@dataclass(frozen=True)
class FoundOrder:
    """A head order of one encoder on one task, by the study's seed; its work over all ranking
    seeds, None where nothing was computed for it, or another order counts it.
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

    Any list of heads scores a little better or worse than another, whatever made it. So what is
    beyond chance is beyond what single random lists differ by: by the spread of the random order's
    seeds, each of which draws a list; without a random order nothing is told. Of each group Holm's
    rule goes over the orders that are compared with random ones, which asks whether an order knows
    anything, and apart over all other pairs.
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
        spread = math.nan
        if (random := means.get(_RANDOM)) is not None:
            listed = [mean for order, mean in means.items() if order != _RANDOM]
            spread = deviation_of_lists(random, listed)
        p_values = {
            # Of two fixed orders both have one list.
            (one, other): p_value(
                means[one], means[other], spread * (1 if _RANDOM in (one, other) else math.sqrt(2))
            )
            for one, other in pairs
        }
        adjusted = _adjusted(p_values)
        for first, other in pairs:
            named = {**dict(zip(GROUP, group, strict=True)), "order": first, "other": other}
            both = [found.get(group[:2], {}).get(order) for order in (first, other)]
            rows.append(
                {
                    **named,
                    **_ends(means[first], means[other]),
                    "p": p_values[first, other],
                    "p_holm": adjusted[first, other],
                    "beyond_chance": adjusted[first, other] < _LEVEL,
                    "kendall_tau": _over_seeds(both, kendall_tau),
                }
            )
            rows += [
                {
                    **named,
                    "fraction": at,
                    **_ends(by_order[first][at], by_order[other][at]),
                    "kept_by_both": _over_seeds(both, kept_in_common, count),
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
        own = {pair: p for pair, p in p_values.items() if (_RANDOM in pair) == with_random}
        found |= dict(zip(own, holm(list(own.values())), strict=True))
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
    both: Sequence[FoundOrder | None], likeness: Callable[..., float], *arguments: int
) -> float:
    """The mean likeness of two orders over the seeds; nan where one is not known."""
    first, other = both
    if first is None or other is None:
        return math.nan
    pairs = [(order, other.by_seed[seed]) for seed, order in first.by_seed.items()]
    return float(np.mean([likeness(*pair, *arguments) for pair in pairs]))


def orders_note(compared: OrdersCompared) -> str:
    """What the comparison is, and how many differences are beyond chance."""
    fractions = joined(map(fraction_label, _fractions(compared)))
    axes = varying(compared.pairs, GROUP) or ["task"]
    beyond = [
        f"{rows['beyond_chance'].sum()} of {len(rows)} ({', '.join(rows[axes].iloc[0])})"
        for _, rows in compared.means.groupby(GROUP, sort=False)
        if rows["beyond_chance"].any()
    ]
    which = joined(beyond) if beyond else f"none of {len(compared.means)}"
    return (
        f"Of the differences between two head orders {which} are beyond chance at 5 %, by Holm's "
        "rule over what is compared with random orders, and over all other pairs, of one encoder, "
        f"task and kind of constants. They are of mean scores over {fractions}, paired by seed and "
        "example."
    )


def order_table(compared: OrdersCompared) -> WrittenTable:
    """A row for every order of each encoder, task and kind of constants, the best first."""
    axes = varying(compared.pairs, GROUP)
    beside = dict(list(compared.each_way().groupby([*GROUP, "order"], sort=False)))
    rows = []
    for group, own in groupby(compared.scores, lambda key: key[:3]):
        for key in sorted(own, key=lambda key: -compared.scores[key].mean):
            score, verdicts = compared.scores[key], list(beside[key]["verdict"])
            of_first = beside[key][beside[key]["other"] == compared.first].to_dict("records")
            found = compared.found.get((key[0], key[1]), {}).get(key[3], FoundOrder({}))
            less = [_difference(row, row["verdict"] != NOT_TOLD) for row in of_first]
            seconds, evaluations = found.seconds, found.evaluations
            rows.append(
                {
                    **names_of(dict(zip(GROUP, group, strict=True)), axes),
                    "Head order": order_label(key[3]),
                    "Mean score": score_label(score.mean, score.low, score.high),
                    f"Less {order_label(compared.first)}": "".join(less) or NOTHING,
                    "Better than": str(verdicts.count(BETTER)),
                    "Worse than": str(verdicts.count(WORSE)),
                    "Seconds": NOTHING if seconds is None else f"{seconds:,.1f}",
                    "Evaluations": NOTHING if evaluations is None else f"{evaluations:,}",
                }
            )
    return WrittenTable.of("Head orders", rows, _COST_NOTE)


def pair_table(compared: OrdersCompared) -> WrittenTable:
    """A row for every two orders of each encoder, task and kind of constants."""
    axes, fractions = varying(compared.pairs, GROUP), _fractions(compared)
    rows = []
    for _, own in compared.pairs.groupby([*GROUP, "order", "other"], sort=False):
        mean, *others = own.to_dict("records")
        kept = {
            row["fraction"]: chance_label(row["kept_by_both"], row["kept_by_chance"])
            for row in others
            if pandas.notna(row["kept_by_both"])
        }
        tau = mean["kendall_tau"]
        rows.append(
            {
                **names_of(mean, axes),
                "Head order": order_label(mean["order"]),
                "Other": order_label(mean["other"]),
                "Difference": _difference(mean, mean["beyond_chance"]),
                "Kendall's τ": NOTHING if pandas.isna(tau) else f"{round(tau, 2) + 0.0:.2f}",
                **{f"Both keep at {fraction_label(at)}": kept.get(at, NOTHING) for at in fractions},
            }
        )
    return WrittenTable.of("Head orders, two at a time", rows, _LIKENESS_NOTE)


def _fractions(compared: OrdersCompared) -> list[float]:
    return sorted(compared.pairs["fraction"].dropna().unique(), reverse=True)


def _difference(row: Mapping[str, Any], told: bool) -> str:
    found = score_label(row["difference"], row["low"], row["high"])
    return f"{found} {_BEYOND}" if told else found


def order_charts(compared: OrdersCompared) -> tuple[Chart, ...]:
    """A figure for each encoder and task: other orders less the first, by the first constants."""
    rows = compared.against_first()
    rows = rows[rows["constants"] == rows["constants"].iloc[0]]
    several = rows["encoder"].nunique() > 1
    return tuple(
        _chart(f"{task} · {encoder}" if several else str(task), own, order_label(compared.first))
        for (encoder, task), own in rows.groupby(["encoder", "task"], sort=False)
    )


def _chart(title: str, rows: pandas.DataFrame, first: str) -> Chart:
    rows = rows.sort_values("difference", ascending=False, kind="stable")
    drawn = rows.assign(name=rows["order"].map(order_label))
    ends = {"difference": "difference", "low": "from", "high": "to"}
    x = {"title": f"mean score less that by {first}", "axis": {"tickCount": 5}}
    specification = verdict_rows(
        title,
        drawn[["name", *ends, "verdict"]],
        {**x, "scale": {"padding": 12}},
        list(ends),
        {BETTER: "triangle-up", WORSE: "triangle-down", NOT_TOLD: "circle"},
        f"than {first}",
        [told("name", "head order"), *told_all(ends, ".4f"), told("verdict")],
    )
    return Chart(f"orders-{title}", title, rows, specification)
