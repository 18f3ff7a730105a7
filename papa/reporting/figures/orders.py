"""Head orders beside the study's first."""

from __future__ import annotations

import pandas

from papa.reporting.figures.chart import Chart, told, verdict_rows
from papa.reporting.orders import BETTER, NOT_TOLD, WORSE, OrdersCompared
from papa.reporting.wording import order_label


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
    ends = (("difference", "difference"), ("low", "from"), ("high", "to"))
    specification = verdict_rows(
        title,
        drawn[["name", "difference", "low", "high", "verdict"]],
        {
            "title": f"mean score less that by {first}",
            "axis": {"tickCount": 5},
            "scale": {"padding": 12},
        },
        [field for field, _ in ends],
        {BETTER: "triangle-up", WORSE: "triangle-down", NOT_TOLD: "circle"},
        f"than {first}",
        [
            told("name", "head order"),
            *(told(field, text, ".4f") for field, text in ends),
            told("verdict"),
        ],
    )
    return Chart(f"orders-{title}", title, rows, specification)
