"""One head's matrix in large, as a Vega-Lite specification."""

from __future__ import annotations

from typing import Any

from papa.reporting.charts import SCHEMA


def matrix_specification() -> dict[str, Any]:
    """One head's matrix; the page adds its values ``cells``, the ``labels`` of slots and the ``largest`` entry."""
    ordinal = {"type": "ordinal", "scale": {"paddingInner": 0, "paddingOuter": 0}}
    axis = {
        "values": {"expr": "ticks"},
        "labelExpr": "labels[datum.value]",
        "labelFontWeight": {
            "condition": {"test": "indexof(special, datum.value) >= 0", "value": "bold"},
            "value": "normal",
        },
        "labelAngle": 0,
        "labelOverlap": False,
        "tickSize": 4,
    }
    return {
        "$schema": SCHEMA,
        "data": {"name": "cells", "values": []},
        "width": {"step": 4},
        "height": {"step": 4},
        "mark": {"type": "rect"},
        "encoding": {
            "y": {"field": "row", **ordinal, "axis": axis, "title": "slot that attends"},
            "x": {"field": "column", **ordinal, "axis": {**axis, "orient": "top"}, "title": "slot attended to"},
            "color": {
                "field": "weight",
                "type": "quantitative",
                "scale": {"type": "sqrt", "scheme": "cividis", "domain": {"expr": "[0, largest]"}},
                "legend": {"title": "mean attention", "orient": "bottom", "direction": "horizontal", "format": ".3~g"},
            },
            "tooltip": [
                {"field": "from", "title": "slot that attends"},
                {"field": "to", "title": "slot attended to"},
                {"field": "weight", "title": "mean attention", "format": ".3~g"},
            ],
        },
    }
