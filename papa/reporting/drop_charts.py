"""The page's figures of relative drops, as Vega-Lite specifications."""

from __future__ import annotations

from typing import Any

import pandas

from papa.reporting.charts import Chart, frame, records
from papa.reporting.figures import Drops
from papa.reporting.wording import fraction_headings

_ROW = 40
"""Pixels of one encoder on one task."""


def drop_chart(lines: pandas.DataFrame, fractions: str) -> Chart:
    """The relative drop of every encoder on every task, with the interval of differences paired by seed.

    Args:
        lines: rows of the study's summary: one line for each model and task, at fractions below 1.
        fractions: the identifier of the input that chooses the fraction.
    """
    headings = fraction_headings(lines)
    rows = lines[lines["relative_drop"].notna()].assign(
        heads=lambda cells: cells["fraction"].map(headings),
        name=lambda cells: cells["task"] + " · " + cells["model"],
        verdict=lambda cells: cells["beats_baseline"].map({True: "beats its baselines", False: "inconclusive"}),
    )
    names = list(dict.fromkeys(rows["name"]))
    x = {"type": "quantitative", "title": "relative drop", "axis": {"format": "~%", "tickCount": 6}}
    y = {"field": "name", "type": "nominal", "sort": names, "axis": None}
    verdict: dict[str, Any] = {
        "field": "verdict",
        "type": "nominal",
        "scale": {"domain": ["beats its baselines", "inconclusive"]},
        "legend": {"title": "original score", "orient": "bottom"},
    }
    tooltip = [
        {"field": "name", "title": "task · encoder"},
        {"field": "heads", "title": "input-dependent"},
        *(
            {"field": field, "title": text, "format": ".2%"}
            for field, text in (("relative_drop", "drop"), ("drop_low", "from"), ("drop_high", "to"))
        ),
    ]
    specification = {
        **frame("Relative drop", _ROW * len(names)),
        "params": [{"name": fractions, "value": list(headings.values())[-1], "bind": {"element": f"#{fractions}"}}],
        "data": {"values": records(rows[["name", "heads", "verdict", "relative_drop", "drop_low", "drop_high"]])},
        "transform": [{"filter": f"datum.heads === {fractions}"}],
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rule"}, "encoding": {"x": {"datum": 0, **x}, "y": None}},
            {
                "transform": [{"filter": "isValid(datum.drop_low)"}],
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {"field": "drop_low", **x}, "x2": {"field": "drop_high"}, "color": verdict},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {
                    "x": {"field": "relative_drop", **x},
                    "color": verdict,
                    "shape": {**verdict, "scale": {**verdict["scale"], "range": ["circle", "diamond"]}},
                    "tooltip": tooltip,
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dy": -13, "style": "row-label"},
                "encoding": {"text": {"field": "name"}, "x": {"value": 2}},
            },
        ],
    }
    columns = [
        "model",
        "task",
        "constants",
        "order",
        "fraction",
        "relative_drop",
        "drop_low",
        "drop_high",
        "beats_baseline",
    ]
    return Chart("relative-drop", "Relative drop", rows[columns], specification)


def encoders_chart(drops: Drops) -> Chart:
    """Each encoder's original score against its relative drop (paper, Figure 3)."""
    encoding = {
        "x": {
            "field": "relative_drop",
            "type": "quantitative",
            "title": f"relative drop {drops.condition}",
            "axis": {"format": "~%", "tickCount": 6},
            "scale": {"zero": False, "padding": 60},
        },
        "y": {
            "field": "original",
            "type": "quantitative",
            "title": "original score",
            "scale": {"zero": False, "padding": 24},
        },
    }
    tooltip = [
        {"field": "model"},
        {"field": "original", "format": ".4f"},
        {"field": "relative_drop", "title": "relative drop", "format": ".2%"},
    ]
    specification = {
        **frame("Encoders", 280),
        "data": {"values": records(drops.points)},
        "encoding": encoding,
        "layer": [
            {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1}, "encoding": {"tooltip": tooltip}},
            {"mark": {"type": "text", "dy": -12, "style": "row-label"}, "encoding": {"text": {"field": "model"}}},
        ],
    }
    return Chart("encoders", "Encoders", drops.points, specification)
