"""Figures of a study, from its tables; a figure names its frame: a page holds data once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import vl_convert

from papa.errors import SpecError
from papa.files import write_atomically
from papa.reporting.wording import (
    MARK,
    condition,
    fraction_headings,
    marked,
    metric_label,
    order_label,
    varying,
)
from papa.scores.summary import ONE_ANSWER, WORDS, drops_over_tasks
from papa.spec.task import LOSS

Spec = dict[str, Any]
_QUIET = {"labelColor": "var(--quiet)", "labelFontSize": 12, "titleColor": "var(--quiet)"}
_TEXT = {**_QUIET, "titleFontSize": 12, "titleFontWeight": "normal"}
_LINE = dict.fromkeys(("gridColor", "domainColor", "tickColor"), "var(--line)")
_LONG = {"labelLimit": 600, "columns": 1}
PAGE: Spec = {
    "font": 'system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif',
    "background": "transparent",
    "axis": {**_TEXT, **_LINE},
    "axisX": {"labelAngle": 0},
    "axisY": {"domain": False, "ticks": False, "tickCount": 5},
    "legend": {
        **_TEXT,
        "labelColor": "var(--ink)",
        "orient": "bottom",
        "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
        **_LONG,
    },
    "header": {"labelColor": "var(--ink)", "labelFontSize": 13, "labelFontWeight": "bold"},
    "view": {"stroke": None},
    "range": {"category": [f"var(--line-{number})" for number in range(1, 8)]},
    "point": {"color": "var(--line-1)", "filled": True, "size": 75, "opacity": 1},
    "rule": {"color": "var(--quiet)"},
    "tick": {"color": "var(--quiet)", "thickness": 1},
    "text": {"color": "var(--ink)"},
    "title": {"color": "var(--ink)", "fontSize": 13, "anchor": "start"},
}
"""Colours and type. The page's style has the colours, so figures follow the reader's setting and
the printer's.
"""
STYLE = (files("papa.reporting") / "templates" / "report.css").read_text()
_LIGHT = dict(re.findall(r"(--[\w-]+): (#\w+)", STYLE.partition("}")[0]))
FILE: Spec = {
    **json.loads(re.sub(r"var\((.*?)\)", lambda found: _LIGHT[found[1]], json.dumps(PAGE))),
    # vl-convert brings the first; the others are as wide, so files look the same anywhere.
    "font": '"Liberation Sans", Arial, Helvetica, sans-serif',
    "background": "white",
}
FORMATS: dict[str, Callable[[str], str | bytes]] = {
    ".svg": str,
    ".png": lambda svg: vl_convert.svg_to_png(svg, scale=2),
    ".pdf": vl_convert.svg_to_pdf,
}
"""What a figure is saved as, by the end of its file's name."""
_NOT_XML = re.compile(r"\\u(?:00(?:0[0-8bcef]|1[0-9a-f])|fff[ef])")
"""Names come from folders: a character that XML cannot hold would end the process."""


@dataclass(frozen=True)
class Figure:
    """A frame, which its specification calls ``source``, drawn as Vega-Lite says, without colours
    and type. A notebook shows it by itself.
    """

    name: str
    title: str
    source: str
    data: pandas.DataFrame = field(repr=False)
    specification: Spec = field(repr=False)

    def svg(self) -> str:
        """On white."""
        whole = {**self.specification, "datasets": {self.source: records(self.data)}}
        text = _NOT_XML.sub(r"\\ufffd", json.dumps(whole))
        return vl_convert.vegalite_to_svg(text, config=FILE)

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends in ``.png``, ``.svg`` or ``.pdf``.

        Raises:
            SpecError: the name ends in none of them.
        """
        path = Path(path)
        if path.suffix not in FORMATS:
            raise SpecError(f"no figure is written to {path}: give a .png, .svg or .pdf file")
        write_atomically(path, FORMATS[path.suffix](self.svg()))

    _repr_svg_ = svg


def records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where a number is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=10))
    return rows


def datasets(figures: Iterable[Figure]) -> dict[str, list[dict[str, Any]]]:
    """The rows of all figures, each once, by the names that specifications use."""
    frames: dict[str, list[pandas.DataFrame]] = {}
    for figure in figures:
        frames.setdefault(figure.source, []).append(figure.data)
    return {name: records(pandas.concat(own).drop_duplicates()) for name, own in frames.items()}


_PANEL = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
"""As wide as its place on a page."""
TOLD: Spec = {"tooltip": {"content": "data"}}
_PERCENT = {"axis": {"format": "~%", "tickCount": 6}}
_AXES = ("constants", "encoder", "order", "study")
"""What tells lines apart: the first of several values by colour, the others by dashes."""
_BASELINES = {"always_one_answer": ONE_ANSWER, "word_embeddings": WORDS}
_BASELINE_DASHES = {ONE_ANSWER: [1, 3], WORDS: [5, 5]}
_LINE_DASHES = [[1, 0], [8, 3], [8, 3, 2, 3], [3, 2], [12, 4], [8, 3, 2, 3, 2, 3]]
_WITH_RATIO = "[datum.label, '× ' + format(exp(datum.value), '.3~r')]"
_DROPS: dict[str, tuple[tuple[str, str, str], str, Spec]] = {
    "share": (("relative_drop", "drop_low", "drop_high"), "relative drop", _PERCENT["axis"]),
    "nats": (
        ("difference", "difference_low", "difference_high"),
        "difference in nats, × ratio of perplexities",
        {"labelExpr": _WITH_RATIO, "tickCount": 5},
    ),
}
"""By unit: the columns of a drop and of its interval's bounds, its title and its axis."""
_STEP = 18
"""Pixels of height that a drop, or the name of some, takes."""


def figure(
    name: str, title: str, source: str, data: pandas.DataFrame, body: Spec, **equal: str
) -> Figure:
    """A figure of the rows whose columns are ``equal`` to values."""
    chosen = [{"filter": {"field": column, "equal": value}} for column, value in equal.items()]
    schema = "https://vega.github.io/schema/vega-lite/v6.json"
    named = {"$schema": schema, "description": title, "data": {"name": source}}
    return Figure(name, title, source, data, {**named, **body, "transform": chosen})


def mark(kind: str, encoding: Spec, *, where: str = "", **looks: Any) -> Spec:
    rows = {"transform": [{"filter": where}]} if where else {}
    return {**rows, "mark": {"type": kind, **looks}, "encoding": encoding}


def number(field: str, title: str | None = None, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _name(field: str, **more: Any) -> Spec:
    """A channel of names, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": None, "sort": None, **more}


def _lines(rows: pandas.DataFrame, every: pandas.DataFrame) -> Spec:
    """A line for each ``line`` of one task's rows, by colour and shape as ``_colour`` says and the
    ``dash`` of other axes; with intervals, baselines and daggers.

    Args:
        every: the rows of all tasks, of which those with the same metric share their axis.
    """
    metric = metric_label(rows.iloc[0])
    of_metric = every[every["metric"] == rows["metric"].iloc[0]]
    scale = _domain(of_metric[["mean", "low", "high", *_BASELINES]])

    def y(field: str, **more: Any) -> Spec:
        return {"y": number(field, metric, scale=scale, **more)}

    colour = _colour(every)
    dashes = _dashes(every)
    layers = []
    for column, name in _BASELINES.items():
        if rows[column].notna().any():
            score = {**y(column, aggregate="max"), "detail": _name("encoder")}
            encoding = {**score, "strokeDash": {**dashes, "datum": name}}
            if colour["field"] == "encoder" and name == WORDS:
                encoding["color"] = colour
            layers.append(mark("rule", encoding, strokeWidth=1.5))
    place = {
        "x": {
            "field": "heads",
            "type": "ordinal",
            "sort": list(rows.sort_values("fraction", ascending=False)["heads"].unique()),
            "scale": {"paddingInner": 0.75, "paddingOuter": 0.4},
            "title": f"share of heads that stay input-dependent{_others(every)}",
        },
        "xOffset": _name("line", scale={"domain": list(rows["line"].unique())}),
    }
    mean, interval = {**y("mean"), "color": colour}, {**y("low"), "y2": {"field": "high"}}
    line = {**mean, "detail": _name("line")}
    if every["dash"].any():
        line["strokeDash"] = {**dashes, "field": "dash"}
    lines = [
        mark("line", line),
        mark("rule", {**interval, "color": colour}, where="isValid(datum.low)"),
        mark("point", {**mean, "shape": colour}, **TOLD),
    ]
    if (rows["reason"] != "").any():
        dagger = {**y("mean"), "text": {"value": MARK}}
        unknown = "datum.reason !== '' && datum.fraction < 1"
        lines.append(mark("text", dagger, where=unknown, dx=11, fontSize=14))
    return {"layer": [*layers, {"encoding": place, "layer": lines}]}


def _dashes(rows: pandas.DataFrame) -> Spec:
    """The channel of dashes without what it shows: of lines as far as colours do not tell them
    apart, and of the baselines; a legend names them, as a label would be struck by another line.
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


def _domain(values: pandas.DataFrame, *others: float) -> Spec:
    """A scale from the smallest to the largest of all values, which panels share."""
    numbers = [*values.stack().dropna(), *others]
    least, most = min(numbers), max(numbers)
    margin = 0.03 * (most - least) or 0.01
    return {"domain": [least - margin, most + margin], "zero": False, "nice": True}


def _colour(rows: pandas.DataFrame) -> Spec:
    """The channel of colours: of constants where a study has several, in all of its figures; else
    of encoders, head orders or studies, whichever it has several of.
    """
    axis = next(iter(varying(rows, _AXES)), "constants")
    return _name(axis, scale={"domain": list(rows[axis].unique())})


def _others(rows: pandas.DataFrame) -> str:
    """What the other heads use, where no legend says so."""
    return "" if _colour(rows)["field"] == "constants" else f"; others: {rows['constants'].iloc[0]}"


def _drawn(summary: pandas.DataFrame) -> pandas.DataFrame:
    """The summary with fractions and head orders in words, ``line``, what tells a line from others,
    and ``dash``, what does so besides its colour.
    """
    heads = summary["fraction"].map(fraction_headings(summary))
    rows = summary.assign(heads=heads, order=summary["order"].map(order_label))
    axes = varying(rows, _AXES)
    for name, own in (("line", axes), ("dash", axes[1:])):
        rows[name] = rows[own].agg(", ".join, axis=1) if own else ""
    return rows


def scores_figure(summary: pandas.DataFrame) -> Figure:
    """A panel a task, a line for each encoder, constants, order and study, with 95 % intervals and
    baselines (paper, Figures 2, 5, 6).
    """
    rows = _drawn(summary)
    panels = [
        {
            "title": {"text": task, "anchor": "middle"},
            "width": 320,
            "height": 280,
            "transform": [{"filter": {"field": "task", "equal": task}}],
            **_lines(own, rows),
        }
        for task, own in rows.groupby("task", sort=False)
    ]
    title = "Score against the share of heads that stay input-dependent, with 95 % intervals."
    return figure("scores", title, "summary", rows, {"concat": panels, "columns": 3})


def score_panels(summary: pandas.DataFrame) -> list[Figure]:
    """Those panels, one by one, for a page."""
    rows = _drawn(summary)
    panels = []
    for task, own in rows.groupby("task", sort=False):
        body = {**_PANEL, "height": 280, **_lines(own, rows)}
        panels.append(figure(f"scores-{task}", task, "summary", own, body, task=task))
    return panels


def drop_panels(summary: pandas.DataFrame) -> list[Figure]:
    """The drop of every encoder on every task with every kind of constants, by the study's first
    head order: a panel for each fraction below 1, a row for each encoder and task with its name
    above, a dagger where nothing can be told; losses have panels of their own, in nats. Panels of
    one unit share their axis.
    """
    cells = summary[(summary["order"] == summary["order"].iloc[0]) & (summary["fraction"] < 1)]
    lost = cells.dropna(subset="difference").assign(
        heads=lambda rows: rows["fraction"].map(fraction_headings(summary)),
        unit=lambda rows: np.where(rows["metric"] == LOSS, "nats", "share"),
        name=lambda rows: [_drop_name(row) for row in rows.to_dict("records")],
        is_first=lambda rows: ~rows.duplicated(["heads", "name"]),
    )
    panels = []
    for unit, (columns, title, axis) in _DROPS.items():
        of_unit = lost[lost["unit"] == unit]
        if of_unit.empty:
            continue
        scale = _domain(of_unit[list(columns)], 0.0)
        if summary["order"].nunique() > 1:
            title += f", {order_label(cells['order'].iloc[0])}"
        for at, own in of_unit.groupby("heads", sort=False):
            layers = _drops(own, columns, f"{title}{_others(summary)}", scale, axis, summary)
            places = (1 + summary["constants"].nunique()) * own["name"].nunique()
            body = {**_PANEL, "height": _STEP * places, **layers}
            name = f"drop-{at}" if unit == "share" else f"drop-{at}-{unit}"
            panels.append(figure(name, at, "drops", own, body, heads=at, unit=unit))
    return panels


def _drop_name(row: dict[str, Any]) -> str:
    """The name of a row of drops, and why it has no point."""
    name = marked(f"{row['task']} · {row['encoder']}", row)
    near_zero = row["metric"] != LOSS and np.isnan(row["relative_drop"])
    return f"{name}: original near 0" if near_zero else name


def _drops(
    rows: pandas.DataFrame,
    columns: tuple[str, str, str],
    title: str,
    scale: Spec,
    axis: Spec,
    summary: pandas.DataFrame,
) -> Spec:
    """A point with its interval for each kind of constants of a summary, below names of rows."""
    drop, low, high = columns
    colour = _colour(summary)
    kinds = list(summary["constants"].unique())
    # The first place of each row is its name's.
    place = {"yOffset": _name("constants", scale={"domain": ["", *kinds], "padding": 0})}
    names = {"domain": list(rows["name"].unique()), "padding": 0}
    of_drop = number(drop, title, scale=scale, axis=axis)
    ends = {"x": number(low, title, scale=scale, axis=axis), "x2": {"field": high}}
    zero = {"datum": 0, "type": "quantitative", "title": title, "scale": scale, "axis": axis}
    label = {"text": {"field": "name"}, "x": {"value": 2}, "yOffset": {"datum": ""}}
    return {
        "encoding": {"y": _name("name", axis=None, scale=names)},
        "layer": [
            mark("tick", {"x": zero, **place}, size=_STEP),
            mark("rule", {**ends, **place, "color": colour}, where=f"isValid(datum.{low})"),
            mark("point", {"x": of_drop, **place, "color": colour, "shape": colour}, **TOLD),
            mark("text", label, where="datum.is_first", align="left", dy=3),
        ],
    }


def encoders_figure(summary: pandas.DataFrame) -> Figure | None:
    """Each encoder's original score against its drop with the fewest heads (paper, Figure 3); None
    below two encoders.
    """
    points, _ = drops_over_tasks(summary)
    if len(points) < 2:
        return None
    constants = summary["constants"].iloc[0]
    title, both = "Encoders", points[["original", "relative_drop"]]
    if len(points) > 2 and both.nunique().min() > 1:
        title += f", r = {both.corr().iloc[0, 1]:.2f}"
    drop = f"relative drop {condition(summary['fraction'].min())} ({constants}), mean over tasks"
    scale = {"zero": False, "padding": 48}
    encoding = {
        "x": number("relative_drop", drop, scale=scale, **_PERCENT),
        "y": number("original", "original score", scale=scale),
    }
    colour = {**_colour(summary), "legend": None}
    layers = [
        mark("point", {"color": colour, "shape": colour}, **TOLD),
        mark("text", {"text": {"field": "encoder"}}, dy=-12),
    ]
    body = {**_PANEL, "height": 280, "title": title, "encoding": encoding, "layer": layers}
    return figure("drops", title, "encoders", points.assign(constants=constants), body)
