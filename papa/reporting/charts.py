"""The interactive figures of the page, as Vega-Lite specifications with the data they draw."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from papa.reporting.verdicts import WORDS, one_answer_label
from papa.reporting.wording import axis_label, fraction_headings, metric_label

SPACING = "spacing"
"""The page's switch between even and true distances of fractions: a parameter, and the identifier of its input."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_GAP = 0.014
"""Between lines at one fraction, as a share of the width: or the intervals of close lines would hide each other."""


@dataclass(frozen=True)
class Chart:
    """One figure.

    Attributes:
        name: its identifier and the name of its files.
        title: what it shows, above it.
        data: what it draws, as its CSV has it.
        specification: in Vega-Lite.
    """

    name: str
    title: str
    data: pandas.DataFrame
    specification: dict[str, Any]

    @property
    def csv(self) -> str:
        """The data as an address that a link downloads."""
        return csv_address(self.data)


def csv_address(frame: pandas.DataFrame) -> str:
    """A table as an address that a link downloads."""
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(frame.to_csv(index=False).encode()).decode()}"


def score_chart(
    name: str, title: str, lines: pandas.DataFrame, line: str, known: Sequence[str], model: str = ""
) -> Chart:
    """Score against the share of heads that stay input-dependent, with 95 % intervals and both baselines.

    Args:
        name, title: of the chart.
        lines: rows of the study's summary: one task; one line for each value of ``line``.
        line: the column that tells lines apart.
        known: its values over all charts that shall give them the same colours.
        model: the identifier of an input that chooses one of several models; "" where lines are not chosen by it.
    """
    headings = fraction_headings(lines)
    labels, values = list(headings.values()), [float(one) for one in headings]
    last = max(len(values) - 1, 1)
    even = {fraction: place / last for place, fraction in enumerate(values)}
    present = [value for value in known if value in set(lines[line])]
    gap = {value: _GAP * (place - (len(present) - 1) / 2) for place, value in enumerate(present)}
    points = lines.assign(
        line=[axis_label(line, value) for value in lines[line]],
        heads=lines["fraction"].map(headings),
        at_even=lines["fraction"].map(even) + lines[line].map(gap),
        at_true=1 - lines["fraction"] + lines[line].map(gap),
    )
    baselines = [
        {"model": row["model"], "baseline": what, "score": row[column], "side": side}
        for row in lines.drop_duplicates("model").to_dict("records")
        for what, column, side in (
            (one_answer_label(row), "always_one_answer", "left"),
            (WORDS, "word_embeddings", "right"),
        )
        if pandas.notna(row[column])
    ]
    if not model:
        # One rule for all models: what one answer scores is the task's, and only one encoder's words are drawn.
        baselines = [one for one in baselines if one["model"] == lines["model"].iloc[0]]
    chosen = [{"filter": f"datum.model === {model}"}] if model else []
    x: dict[str, Any] = {
        "field": "x",
        "type": "quantitative",
        "title": "share of heads that stay input-dependent",
        "scale": {"domain": [-0.06, 1.06], "nice": False, "zero": False},
        "axis": {
            "values": {"expr": "ticks"},
            "labelExpr": "labels[indexof(ticks, datum.value)]",
            "labelOverlap": "greedy",
            "grid": False,
        },
    }
    colour: dict[str, Any] = {
        "field": "line",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": [axis_label(line, value) for value in known]},
        "legend": {"title": None, "orient": "bottom", "columns": 2, "labelLimit": 190} if len(known) > 1 else None,
    }
    shape = {"field": "line", "type": "nominal", "scale": colour["scale"], "legend": colour["legend"]}
    score: dict[str, Any] = {"type": "quantitative", "title": metric_label(lines.iloc[0]), "scale": {"zero": False}}
    tooltip = [
        {"field": "line", "title": line},
        {"field": "heads", "title": "input-dependent"},
        *(
            {"field": name, "title": text, "format": ".4f"}
            for name, text in (("mean", "score"), ("low", "from"), ("high", "to"))
        ),
    ]
    at_fraction = {
        "data": {"values": records(points[["model", "line", "heads", "at_even", "at_true", "mean", "low", "high"]])},
        "transform": [*chosen, {"calculate": f"{SPACING} === 'true' ? datum.at_true : datum.at_even", "as": "x"}],
        "encoding": {"x": x, "color": colour},
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.7},
                "encoding": {"y": {"field": "low", **score}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": {"field": "mean", **score}}},
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {"y": {"field": "mean", **score}, "shape": shape, "tooltip": tooltip},
            },
        ],
    }
    return Chart(
        name,
        title,
        points[
            [
                "model",
                "task",
                "constants",
                "order",
                "fraction",
                "mean",
                "low",
                "high",
                "always_one_answer",
                "word_embeddings",
            ]
        ],
        {
            **frame(title, 260),
            "params": [
                {"name": SPACING, "value": "even", "bind": {"element": f"#{SPACING}"}},
                *(
                    [{"name": model, "value": str(lines["model"].iloc[0]), "bind": {"element": f"#{model}"}}]
                    if model
                    else []
                ),
                {"name": "labels", "value": labels},
                {
                    "name": "ticks",
                    "expr": f"{SPACING} === 'true' ? {[1 - one for one in values]} : {list(even.values())}",
                },
            ],
            "layer": [_baselines(baselines, chosen, score), at_fraction],
        },
    )


def _baselines(baselines: list[dict[str, Any]], chosen: list[dict[str, str]], score: dict[str, Any]) -> dict[str, Any]:
    """Dashed lines with their names, one at each end."""
    y = {"field": "score", **score}
    text: dict[str, Any] = {"type": "text", "fontSize": 10.5, "dy": -5}
    ends: dict[str, Any] = {"left": 2, "right": {"expr": "width - 2"}}
    sides: dict[str, Any] = {
        side: {
            "transform": [{"filter": f"datum.side === '{side}'"}],
            "mark": {**text, "align": side},
            "encoding": {
                "y": y,
                "text": {"field": "baseline"},
                "x": {"value": end},
            },
        }
        for side, end in ends.items()
    }
    return {
        "data": {"values": baselines},
        "transform": chosen,
        "layer": [
            {
                "mark": {"type": "rule", "strokeDash": [2, 4]},
                "encoding": {"y": y, "tooltip": [{"field": "baseline"}, {"field": "score", "format": ".4f"}]},
            },
            *sides.values(),
        ],
    }


def frame(description: str, height: int) -> dict[str, Any]:
    """What all figures of the page have in common: as wide as their place."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where a number is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=10))
    return rows


def main_lines(summary: pandas.DataFrame) -> pandas.DataFrame:
    """One line for each model and task: the study's first constants and head order."""
    first = summary.iloc[0]
    return summary[(summary["constants"] == first["constants"]) & (summary["order"] == first["order"])]
