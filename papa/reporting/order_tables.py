"""The comparison of head orders as tables, sentences and figures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import pandas

from papa.reporting.figures.chart import Chart, told, told_all, verdict_rows
from papa.reporting.orders import BETTER, GROUP, NOT_TOLD, WORSE, FoundOrder, OrdersCompared
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

BEYOND = "*"
"""Marks a difference that is beyond chance."""


def orders_note(compared: OrdersCompared) -> str:
    """What the comparison is, and how many differences are beyond chance."""
    fractions = joined(map(fraction_label, _fractions(compared)))
    axes = varying(compared.pairs, GROUP) or ["task"]
    told = [
        f"{rows['beyond_chance'].sum()} of {len(rows)} ({', '.join(rows[axes].iloc[0])})"
        for _, rows in compared.means.groupby(GROUP, sort=False)
        if rows["beyond_chance"].any()
    ]
    which = joined(told) if told else f"none of {len(compared.means)}"
    return (
        f"Of the differences between two head orders {which} are beyond chance at 5 %, by Holm's "
        "rule over what is compared with random orders, and over all other pairs, of one encoder, "
        f"task and kind of constants. They are of mean scores over {fractions}, paired by seed and "
        "example."
    )


_LIKENESS_NOTE = (
    f"{BEYOND}: beyond chance. Kendall's τ of the two orders is about 0 by chance. Both keep: of "
    "the heads that stay input-dependent, the share that does by both orders; brackets hold what "
    "random orders share. Where an order differs by seed these are means over seeds."
)
_COST_NOTE = (
    f"{BEYOND}: beyond chance. Better than, worse than: how many other orders, beyond chance. "
    "Seconds of work and evaluations (passes over the examples; of λ its epochs) are those of the "
    "ranking, over all its seeds; –: nothing was computed for this order, or nothing beyond what "
    "another order's row counts."
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
        kept = {row["fraction"]: row for row in others}
        tau = mean["kendall_tau"]
        rows.append(
            {
                **names_of(mean, axes),
                "Head order": order_label(mean["order"]),
                "Other": order_label(mean["other"]),
                "Difference": _difference(mean, mean["beyond_chance"]),
                "Kendall's τ": NOTHING if pandas.isna(tau) else f"{round(tau, 2) + 0.0:.2f}",
                **{f"Both keep at {fraction_label(at)}": _kept(kept.get(at)) for at in fractions},
            }
        )
    return WrittenTable.of("Head orders, two at a time", rows, _LIKENESS_NOTE)


def _fractions(compared: OrdersCompared) -> list[float]:
    return sorted(compared.pairs["fraction"].dropna().unique(), reverse=True)


def _difference(row: Mapping[str, Any], told: bool) -> str:
    found = score_label(row["difference"], row["low"], row["high"])
    return f"{found} {BEYOND}" if told else found


def _kept(row: Mapping[str, Any] | None) -> str:
    if row is None or pandas.isna(row["kept_by_both"]):
        return NOTHING
    return chance_label(row["kept_by_both"], row["kept_by_chance"])


def order_charts(compared: OrdersCompared) -> tuple[Chart, ...]:
    """A figure for each encoder and task: every other order's mean score less that of the first,
    with the study's first kind of constants.
    """
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
    specification = verdict_rows(
        title,
        drawn[["name", "difference", "low", "high", "verdict"]],
        {
            "title": f"mean score less that by {first}",
            "axis": {"tickCount": 5},
            "scale": {"padding": 12},
        },
        list(ends),
        {BETTER: "triangle-up", WORSE: "triangle-down", NOT_TOLD: "circle"},
        f"than {first}",
        [told("name", "head order"), *told_all(ends, ".4f"), told("verdict")],
    )
    return Chart(f"orders-{title}", title, rows, specification)
