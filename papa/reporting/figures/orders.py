"""Head orders beside the study's first."""

from __future__ import annotations

from typing import Any

import pandas

from papa.reporting.figures.chart import Chart, on_page, records
from papa.reporting.orders import BETTER, NOT_TOLD, WORSE, OrdersCompared
from papa.reporting.wording import order_label

_ROW = 40
"""Pixels of one order."""


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
    names = list(drawn["name"])
    x = {
        "type": "quantitative",
        "title": f"mean score less that by {first}",
        "axis": {"tickCount": 5},
        "scale": {"padding": 12},
    }
    y = {"field": "name", "type": "nominal", "sort": names, "axis": None}
    verdict: dict[str, Any] = {
        "field": "verdict",
        "type": "nominal",
        "scale": {"domain": [BETTER, WORSE, NOT_TOLD]},
        "legend": {"title": f"than {first}", "orient": "bottom"},
    }
    tooltip = [
        {"field": "name", "title": "head order"},
        *(
            {"field": field, "title": text, "format": ".4f"}
            for field, text in (("difference", "difference"), ("low", "from"), ("high", "to"))
        ),
        {"field": "verdict"},
    ]
    specification = {
        **on_page(title, _ROW * len(names)),
        "data": {"values": records(drawn[["name", "difference", "low", "high", "verdict"]])},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rule"}, "encoding": {"x": {"datum": 0, **x}, "y": None}},
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {
                    "x": {"field": "low", **x},
                    "x2": {"field": "high"},
                    "color": verdict,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {
                    "x": {"field": "difference", **x},
                    "color": verdict,
                    "shape": {
                        **verdict,
                        "scale": {
                            **verdict["scale"],
                            "range": ["triangle-up", "triangle-down", "circle"],
                        },
                    },
                    "tooltip": tooltip,
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dy": -13, "style": "row-label"},
                "encoding": {"text": {"field": "name"}, "x": {"value": 2}},
            },
        ],
    }
    return Chart(f"orders-{title}", title, rows, specification)
