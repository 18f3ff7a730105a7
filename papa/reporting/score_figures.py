"""Figures of a study's scores and drops, from its summary (paper, Figures 2, 3, 5, 6)."""

from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
import pandas

from papa.reporting.figures import (
    PANEL,
    STEP,
    TOOLTIP,
    Figure,
    Spec,
    domain,
    figure,
    layer,
    nominal,
    number,
)
from papa.reporting.wording import (
    DAGGER,
    Row,
    fraction_headings,
    fraction_phrase,
    metric_label,
    order_label,
    varying_axes,
    with_dagger,
)
from papa.scores.summary import (
    ONE_ANSWER,
    WORDS,
    distinct_fractions,
    drops_over_tasks,
    inconclusive_rows,
)
from papa.spec.task import LOSS

_PERCENT = {"axis": {"format": "~%", "tickCount": 6}}
_AXES = ("constants", "encoder", "order", "study")
"""The axes that distinguish lines: the first that varies by colour, the others by dashes."""
_BASELINES = {"always_one_answer": ONE_ANSWER, "word_embeddings": WORDS}
_BASELINE_DASHES = {ONE_ANSWER: [1, 3], WORDS: [5, 5]}
_LINE_DASHES = [[1, 0], [8, 3], [8, 3, 2, 3], [3, 2], [12, 4], [8, 3, 2, 3, 2, 3]]
_WITH_RATIO = "[datum.label, '× ' + format(exp(datum.value), '.3~r')]"


class DropUnit(NamedTuple):
    """How drops of one unit are drawn: their columns, and the title and the look of their axis."""

    drop: str
    low: str
    high: str
    title: str
    axis: Spec


_DROP_UNITS = {
    "share": DropUnit("relative_drop", "drop_low", "drop_high", "relative drop", _PERCENT["axis"]),
    "nats": DropUnit(
        "difference",
        "difference_low",
        "difference_high",
        "difference in nats, × ratio of perplexities",
        {"labelExpr": _WITH_RATIO, "tickCount": 5},
    ),
}


def scores_figure(summary: pandas.DataFrame) -> Figure:
    """Return a panel a task, with a line for each encoder, constants, order and study, 95 %
    intervals and baselines (paper, Figures 2, 5, 6).
    """
    rows = _drawn(summary)
    panels = [
        {
            "title": {"text": task, "anchor": "middle"},
            "width": 320,
            "height": 280,
            "transform": [{"filter": {"field": "task", "equal": task}}],
            **_lines(rows_of_task, rows),
        }
        for task, rows_of_task in rows.groupby("task", sort=False)
    ]
    title = "Score against the share of heads that stay input-dependent, with 95 % intervals."
    return figure("scores", title, "summary", rows, {"concat": panels, "columns": 3})


def score_panels(summary: pandas.DataFrame) -> list[Figure]:
    """Return the panels of ``scores_figure`` one by one, for a page."""
    rows = _drawn(summary)
    panels = []
    for task, rows_of_task in rows.groupby("task", sort=False):
        body = {**PANEL, "height": 280, **_lines(rows_of_task, rows)}
        panels.append(figure(f"scores-{task}", task, "summary", rows_of_task, body, task=task))
    return panels


def _lines(rows: pandas.DataFrame, all_rows: pandas.DataFrame) -> Spec:
    """Return the layers of one task's panel: lines by colour, shape and dash, with intervals,
    baselines and marks.

    Args:
        all_rows: the rows of all tasks; tasks with the same metric share their axis.
    """
    metric = metric_label(rows.iloc[0])
    rows_of_metric = all_rows[all_rows["metric"] == rows["metric"].iloc[0]]
    scale = domain(rows_of_metric[["mean", "low", "high", *_BASELINES]])

    def y(field: str, **properties: object) -> Spec:
        return {"y": number(field, metric, scale=scale, **properties)}

    colour = _colour(all_rows)
    dashes = _dashes(all_rows)
    # Word embeddings are those of an encoder, and their probe's training that of a study.
    owners = [nominal(axis) for axis in ("encoder", "study") if axis in rows]
    baselines = []
    for column, name in _BASELINES.items():
        if rows[column].notna().any():
            score = {**y(column, aggregate="max"), "detail": owners}
            encoding = {**score, "strokeDash": {**dashes, "datum": name}}
            if colour["field"] == "encoder" and name == WORDS:
                encoding["color"] = colour
            baselines.append(layer("rule", encoding, strokeWidth=1.5))
    position = {
        "x": {
            "field": "heads",
            "type": "ordinal",
            "sort": list(rows.sort_values("fraction", ascending=False)["heads"].unique()),
            "scale": {"paddingInner": 0.75, "paddingOuter": 0.4},
            "title": f"share of heads that stay input-dependent{_others_note(all_rows)}",
        },
        "xOffset": nominal("line", scale={"domain": list(rows["line"].unique())}),
    }
    mean = {**y("mean"), "color": colour}
    interval = {**y("low"), "y2": {"field": "high"}, "color": colour}
    line = {**mean, "detail": nominal("line")}
    if all_rows["dash"].any():
        line["strokeDash"] = {**dashes, "field": "dash"}
    lines = [
        layer("line", line),
        layer("rule", interval, where="isValid(datum.low)"),
        layer("point", {**mean, "shape": colour}, tooltip=TOOLTIP),
    ]
    if not inconclusive_rows(rows).empty:
        dagger = {**y("mean"), "text": {"value": DAGGER}}
        is_inconclusive = "datum.reason !== '' && datum.fraction < 1"
        lines.append(layer("text", dagger, where=is_inconclusive, dx=11, fontSize=14))
    return {"layer": [*baselines, {"encoding": position, "layer": lines}]}


def _dashes(rows: pandas.DataFrame) -> Spec:
    """Return the channel of dashes without its field: for lines that colours do not distinguish,
    and for baselines. A legend names them, as other lines would cross a label.
    """
    names = [name for name in rows["dash"].unique() if name]
    patterns = list(islice(cycle(_LINE_DASHES), len(names)))
    for column, name in _BASELINES.items():
        if rows[column].notna().any():
            names.append(name)
            patterns.append(_BASELINE_DASHES[name])
    scale = {"domain": names, "range": patterns}
    legend = {"symbolType": "stroke", "symbolSize": 400, "title": None}
    return {"type": "nominal", "scale": scale, "legend": legend}


def _colour(rows: pandas.DataFrame) -> Spec:
    """Return the channel of colours, the same in all figures of a study: the first of constants,
    encoders, head orders and studies that varies.
    """
    axis = next(iter(varying_axes(rows, _AXES)), "constants")
    return nominal(axis, scale={"domain": list(rows[axis].unique())})


def _others_note(rows: pandas.DataFrame) -> str:
    """Return what the other heads use, if no legend says so."""
    return "" if _colour(rows)["field"] == "constants" else f"; others: {rows['constants'].iloc[0]}"


def _drawn(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Return the summary with fractions and head orders in words, ``line``, the name of each line,
    and ``dash``, what its colour leaves out of it.
    """
    summary = distinct_fractions(summary)
    heads = summary["fraction"].map(fraction_headings(summary))
    rows = summary.assign(heads=heads, order=summary["order"].map(order_label))
    axes = varying_axes(rows, _AXES)
    return rows.assign(line=_joined_names(rows, axes), dash=_joined_names(rows, axes[1:]))


def _joined_names(rows: pandas.DataFrame, axes: list[str]) -> pandas.Series | str:
    return rows[axes].agg(", ".join, axis=1) if axes else ""


def drop_panels(summary: pandas.DataFrame) -> list[Figure]:
    """Return panels with the drop of every encoder on every task with every kind of constants, by
    the study's first head order.

    A panel shows one fraction below 1; each encoder and task has a row with its name above, and a
    dagger if its drops are inconclusive. Losses have panels of their own, in nats. Panels of one
    unit share their axis.
    """
    summary = distinct_fractions(summary)
    cells = summary[(summary["order"] == summary["order"].iloc[0]) & (summary["fraction"] < 1)]
    lost = cells.dropna(subset="difference").assign(
        heads=lambda rows: rows["fraction"].map(fraction_headings(summary)),
        unit=lambda rows: np.where(rows["metric"] == LOSS, "nats", "share"),
        name=lambda rows: [_drop_name(row) for row in rows.to_dict("records")],
        is_first=lambda rows: ~rows.duplicated(["heads", "name"]),
    )
    panels = []
    for unit, style in _DROP_UNITS.items():
        rows_of_unit = lost[lost["unit"] == unit]
        if rows_of_unit.empty:
            continue
        scale = domain(rows_of_unit[[style.drop, style.low, style.high]], 0.0)
        title = style.title
        if summary["order"].nunique() > 1:
            title += f", {order_label(cells['order'].iloc[0])}"
        title += _others_note(summary)
        for share, rows in rows_of_unit.groupby("heads", sort=False):
            layers = _drops(rows, style, title, scale, summary)
            # The name of a row, then a line for each kind of constants.
            steps = (1 + summary["constants"].nunique()) * rows["name"].nunique()
            body = {**PANEL, "height": STEP * steps, **layers}
            name = f"drop-{share}" if unit == "share" else f"drop-{share}-{unit}"
            heading = f"{share} of heads input-dependent" if share != "0" else "every head constant"
            panels.append(figure(name, heading, "drops", rows, body, heads=share, unit=unit))
    return panels


def _drop_name(row: Row) -> str:
    """Return the name of a row of drops, and why it has no point."""
    name = with_dagger(f"{row['task']} · {row['encoder']}", row)
    near_zero = row["metric"] != LOSS and np.isnan(row["relative_drop"])
    return f"{name}: original near 0" if near_zero else name


def _drops(
    rows: pandas.DataFrame, style: DropUnit, title: str, scale: Spec, summary: pandas.DataFrame
) -> Spec:
    """Return the layers of a panel of drops: names of rows, and below each a point with its
    interval for each kind of constants.
    """
    colour = _colour(summary)
    kinds = list(summary["constants"].unique())
    # The first offset of each row is its name's.
    offset = {"yOffset": nominal("constants", scale={"domain": ["", *kinds], "padding": 0})}
    names = {"domain": list(rows["name"].unique()), "padding": 0}
    axis = {"scale": scale, "axis": style.axis}
    zero = {"x": {"datum": 0, "type": "quantitative", "title": title, **axis}, **offset}
    low = {"x": number(style.low, title, **axis), "x2": {"field": style.high}}
    interval = {**low, **offset, "color": colour}
    drop = {"x": number(style.drop, title, **axis), **offset, "color": colour, "shape": colour}
    label = {"text": {"field": "name"}, "x": {"value": 2}, "yOffset": {"datum": ""}}
    return {
        "encoding": {"y": nominal("name", axis=None, scale=names)},
        "layer": [
            layer("tick", zero, size=STEP),
            layer("rule", interval, where=f"isValid(datum.{style.low})"),
            layer("point", drop, tooltip=TOOLTIP),
            layer("text", label, where="datum.is_first", align="left", dy=3),
        ],
    }


def encoders_figure(summary: pandas.DataFrame) -> Figure | None:
    """Return a figure of each encoder's original score against its drop with the fewest
    input-dependent heads (paper, Figure 3); None for fewer than two encoders.
    """
    points, _ = drops_over_tasks(summary)
    if len(points) < 2:
        return None
    constants = summary["constants"].iloc[0]
    title = "Encoders"
    coordinates = points[["original", "relative_drop"]]
    if len(points) > 2 and coordinates.nunique().min() > 1:
        title += f", r = {coordinates.corr().iloc[0, 1]:.2f}"
    drop = (
        f"relative drop {fraction_phrase(summary['fraction'].min())} ({constants}), mean over tasks"
    )
    scale = {"zero": False, "padding": 48}
    encoding = {
        "x": number("relative_drop", drop, scale=scale, axis=_PERCENT["axis"]),
        "y": number("original", "original score", scale=scale),
    }
    colour = {**_colour(summary), "legend": None}
    layers = [
        layer("point", {"color": colour, "shape": colour}, tooltip=TOOLTIP),
        layer("text", {"text": {"field": "encoder"}}, dy=-12),
    ]
    body = {**PANEL, "height": 280, "title": title, "encoding": encoding, "layer": layers}
    return figure("drops", title, "encoders", points.assign(constants=constants), body)
