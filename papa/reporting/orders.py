"""Head orders compared, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas

from papa.reporting.wording import (
    NOTHING,
    chance_label,
    fraction_label,
    names_of,
    order_label,
    score_label,
    varying,
)
from papa.reporting.written import WrittenTable
from papa.scores.orders import BETTER, GROUP, NOT_TOLD, WORSE

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


def order_table(scores: pandas.DataFrame, each_way: pandas.DataFrame) -> WrittenTable:
    """A row for every order of each encoder, task and kind of constants, the best first."""
    axes, first = varying(scores, GROUP), each_way["order"].iloc[0]
    beside = dict(list(each_way.groupby([*GROUP, "order"], sort=False)))
    rows = []
    for group, own in scores.groupby(GROUP, sort=False):
        for row in own.sort_values("mean", ascending=False, kind="stable").to_dict("records"):
            others = beside[*group, row["order"]]
            verdicts = list(others["verdict"])
            less = [
                _difference(other, other["verdict"] != NOT_TOLD)
                for other in others[others["other"] == first].to_dict("records")
            ]
            rows.append(
                {
                    **names_of(row, [*axes, "order"]),
                    "Mean score": score_label(row["mean"], row["low"], row["high"]),
                    f"Less {order_label(first)}": "".join(less) or NOTHING,
                    "Better than": str(verdicts.count(BETTER)),
                    "Worse than": str(verdicts.count(WORSE)),
                    "Seconds": _count(row["seconds"], ",.1f"),
                    "Evaluations": _count(row["evaluations"], ",.0f"),
                }
            )
    return WrittenTable.of("Head orders", rows, _COST_NOTE)


def pair_table(pairs: pandas.DataFrame) -> WrittenTable:
    """A row for every two orders of each encoder, task and kind of constants."""
    axes = varying(pairs, GROUP)
    fractions = sorted(pairs["fraction"].dropna().unique(), reverse=True)
    rows = []
    for _, own in pairs.groupby([*GROUP, "order", "other"], sort=False):
        mean, *others = own.to_dict("records")
        kept = {
            row["fraction"]: chance_label(row["kept_by_both"], row["kept_by_chance"])
            for row in others
            if pandas.notna(row["kept_by_both"])
        }
        rows.append(
            {
                **names_of(mean, [*axes, "order"]),
                "Other": order_label(mean["other"]),
                "Difference": _difference(mean, mean["beyond_chance"]),
                "Kendall's τ": _count(mean["kendall_tau"], "z.2f"),
                **{f"Both keep at {fraction_label(at)}": kept.get(at, NOTHING) for at in fractions},
            }
        )
    return WrittenTable.of("Head orders, two at a time", rows, _LIKENESS_NOTE)


def _count(value: float | None, form: str) -> str:
    return NOTHING if pandas.isna(value) else format(value, form)


def _difference(row: Mapping[str, Any], told: bool) -> str:
    found = score_label(row["difference"], row["low"], row["high"])
    return f"{found} {_BEYOND}" if told else found
