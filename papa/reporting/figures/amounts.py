"""Score against the rows that an average is of."""

from __future__ import annotations

import pandas

from papa.reporting.figures.chart import Chart, layer, on_page, records, told
from papa.reporting.wording import metric_label, percent_label

_DRAWN = ["encoder", "rows", "mean", "low", "high", "unseen_share"]


def amount_charts(found: pandas.DataFrame) -> tuple[Chart, ...]:
    """A figure for each task, a line for each encoder; below a point the share of entries that its
    average never saw.

    Args:
        found: as ``papa.reporting.amounts.amounts`` returns it; of several orders the first.
    """
    found = found[found["order"] == found["order"].iloc[0]]
    return tuple(_chart(str(task), rows) for task, rows in found.groupby("task", sort=False))


def _chart(task: str, rows: pandas.DataFrame) -> Chart:
    drawn = rows[_DRAWN].assign(unseen=rows["unseen_share"].map(percent_label))
    least, most = int(rows["rows"].min()), int(rows["rows"].max())
    x = {
        "field": "rows",
        "type": "quantitative",
        "title": "training rows; below points: entries never seen",
        "scale": {"type": "log", "domain": [least / 4, most * 1.25], "nice": False},
        "axis": {"values": sorted(set(rows["rows"])), "grid": False},
    }
    score = {
        "type": "quantitative",
        "title": metric_label(rows.iloc[0]),
        "scale": {"zero": False, "padding": 14},
    }
    colour = {"field": "encoder", "type": "nominal", "sort": None}
    legend = {"title": None, "orient": "bottom"} if rows["encoder"].nunique() > 1 else None
    mean = {"y": {"field": "mean", **score}}
    tooltip = [
        told("encoder"),
        told("rows"),
        told("mean", "score", ".4f"),
        told("low", "from", ".4f"),
        told("high", "to", ".4f"),
        told("unseen", "entries never seen"),
    ]
    interval = {"y": {"field": "low", **score}, "y2": {"field": "high"}}
    unseen = {**mean, "text": {"field": "unseen"}, "color": None}
    specification = {
        **on_page(task, 260),
        "data": {"values": records(drawn)},
        "encoding": {"x": x, "color": {**colour, "legend": legend}},
        "layer": [
            layer("rule", interval, "isValid(datum.low)", strokeWidth=1.5, opacity=0.7),
            layer("line", mean, strokeWidth=2),
            layer("point", {**mean, "tooltip": tooltip}, filled=True, size=70, opacity=1),
            layer("text", unseen, dy=16, align="right", dx=-5, style="row-label"),
        ],
    }
    return Chart(f"rows-{task}", task, rows[_DRAWN], specification)
