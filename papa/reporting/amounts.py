"""How much text does an average need: scores by averages over few rows, beside that over all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas

from papa.reporting.figures.chart import Chart, layer, on_page, records, told, told_all
from papa.reporting.wording import (
    WrittenTable,
    mean_label,
    metric_label,
    names_of,
    percent_label,
    varying,
)
from papa.spec import StudySpec

_NOTE = (
    "Averages over samples of the training text, with the fewest heads input-dependent: the score, "
    "± 95 % interval over seeds and examples, and the share of the entries that validation rows "
    "read and the average never saw. A smaller sample is part of a larger one."
)
_AXES = ["encoder", "task", "order"]
_DRAWN = ["encoder", "rows", "mean", "low", "high", "unseen_share"]


def amounts(
    study: StudySpec,
    results: pandas.DataFrame,
    summary: pandas.DataFrame,
    corpora: Mapping[str, Mapping[str, Any]],
) -> pandas.DataFrame | None:
    """The cells of averages over some rows, and of that over all rows where the study has it.

    Returns:
        Rows of the summary at the lowest fraction, with ``rows`` and ``unseen_share``, fewest rows
        first; None where no constants are of some rows.
    """
    rows = {constants.label: constants.rows for constants in study.constants if constants.rows}
    lowest = summary["fraction"].min()
    if not rows or lowest == 1:
        return None
    cells = summary[summary["constants"].isin([*rows, "average"]) & (summary["fraction"] == lowest)]
    whole = {task: found.get("rows", {}).get("train") for task, found in corpora.items()}
    counts = [
        rows.get(cell["constants"]) or whole.get(cell["task"]) for cell in cells.to_dict("records")
    ]
    keys = ["encoder", "task", "constants", "order", "fraction"]
    unseen = results.groupby(keys, sort=False)["unseen_share"].first().rename("unseen_share")
    found = cells.assign(rows=counts).merge(unseen.reset_index(), on=keys)
    return found.dropna(subset="rows").sort_values("rows", kind="stable").reset_index(drop=True)


def amounts_table(found: pandas.DataFrame) -> WrittenTable:
    """A row for every average, by encoder and task."""
    axes = varying(found, _AXES)
    rows = []
    for _, line in found.groupby(_AXES, sort=False):
        for row in line.to_dict("records"):
            rows.append(
                {
                    **names_of(row, axes),
                    "Rows": f"{row['rows']:,.0f}",
                    "Score": mean_label(row),
                    "Entries never seen": percent_label(row["unseen_share"]),
                }
            )
    return WrittenTable.of("Averages over little text", rows, _NOTE)


def amount_charts(found: pandas.DataFrame) -> tuple[Chart, ...]:
    """A figure for each task, a line for each encoder, of several orders the first; below a point
    the share of entries that its average never saw.
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
    legend = {"title": None, "orient": "bottom"} if rows["encoder"].nunique() > 1 else None
    colour = {"field": "encoder", "type": "nominal", "sort": None, "legend": legend}
    mean = {"y": {"field": "mean", **score}}
    line = {**mean, "color": colour}
    ends = told_all({"mean": "score", "low": "from", "high": "to"}, ".4f")
    tooltip = [told("encoder"), told("rows"), *ends, told("unseen", "entries never seen")]
    interval = {"y": {"field": "low", **score}, "y2": {"field": "high"}, "color": colour}
    unseen = {**mean, "text": {"field": "unseen"}}
    specification = {
        **on_page(task, 260),
        "data": {"values": records(drawn)},
        "encoding": {"x": x},
        "layer": [
            layer("rule", interval, "isValid(datum.low)", strokeWidth=1.5, opacity=0.7),
            layer("line", line, strokeWidth=2),
            layer("point", {**line, "tooltip": tooltip}, filled=True, size=70, opacity=1),
            layer("text", unseen, dy=16, align="right", dx=-5, style="row-label"),
        ],
    }
    return Chart(f"rows-{task}", task, rows[_DRAWN], specification)
