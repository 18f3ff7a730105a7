"""Figures of a study, from its tables; a figure names its frame: a page holds data once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
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
    metric_label,
    order_label,
    varying,
)
from papa.scores.summary import ONE_ANSWER, WORDS, drops_over_tasks, main_lines

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
    "legend": {**_TEXT, "labelColor": "var(--ink)", "orient": "bottom", **_LONG},
    "header": {"labelColor": "var(--ink)", "labelFontSize": 13, "labelFontWeight": "bold"},
    "view": {"stroke": None},
    "range": {"category": [f"var(--line-{number})" for number in range(1, 8)]},
    "point": {"color": "var(--line-1)", "filled": True, "size": 75, "opacity": 1},
    "rule": {"color": "var(--quiet)"},
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


def _lines(rows: pandas.DataFrame, axes: Sequence[str]) -> Spec:
    """A line for each ``line`` of the rows, by colour and shape of the first axis and the ``dash``
    of the others; with intervals, baselines and daggers.
    """
    metrics = {metric_label(row) for row in rows.to_dict("records")}
    metric = metrics.pop() if len(metrics) == 1 else "score"

    def y(field: str, **more: Any) -> Spec:
        return {"y": number(field, metric, scale={"zero": False}, **more)}

    first = axes[0] if axes else "line"
    names = _name(first, scale={"domain": list(rows[first].unique())}, legend={} if axes else None)
    dashes = _name("dash", legend={"symbolType": "stroke"} if axes[1:] else None)
    layers = []
    for column, name, align, at in (
        ("always_one_answer", ONE_ANSWER, "left", 2),
        ("word_embeddings", WORDS, "right", "width"),
    ):
        if rows[column].notna().any():
            of_all = y(column, aggregate="max")
            own = {"color": names} if first == "encoder" and name == WORDS else {}
            text = {**of_all, "x": {"value": at}, "text": {"value": name}}
            layers += [
                mark("rule", {**of_all, **own}, strokeDash=[2, 4]),
                mark("text", text, align=align, dy=-6, fontSize=10.5),
            ]
    place = {
        "x": {
            "field": "heads",
            "type": "ordinal",
            "sort": list(rows.sort_values("fraction", ascending=False)["heads"].unique()),
            "scale": {"paddingInner": 0.75, "paddingOuter": 0.4},
            "title": "share of heads that stay input-dependent",
        },
        "xOffset": _name("line", scale={"domain": list(rows["line"].unique())}),
    }
    mean, interval = {**y("mean"), "color": names}, {**y("low"), "y2": {"field": "high"}}
    lines = [
        mark("line", {**mean, "strokeDash": dashes, "detail": _name("line")}),
        mark("rule", {**interval, "color": names}, where="isValid(datum.low)"),
        mark("point", {**mean, "shape": names}, **TOLD),
    ]
    if not rows["beats_baseline"].all():
        dagger = {**y("mean"), "text": {"value": MARK}}
        unknown = "!datum.beats_baseline && datum.fraction < 1"
        lines.append(mark("text", dagger, where=unknown, dx=11, fontSize=14))
    return {"layer": [*layers, {"encoding": place, "layer": lines}]}


def _drawn(summary: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """The summary with fractions and head orders in words, ``line``, what tells a line from others,
    and ``dash``, what does so besides its colour; and the axes that do.
    """
    heads = summary["fraction"].map(fraction_headings(summary))
    rows = summary.assign(heads=heads, order=summary["order"].map(order_label))
    axes = varying(rows, ("encoder", "constants", "order", "study"))
    for name, own in (("line", axes), ("dash", axes[1:])):
        rows[name] = rows[own].agg(", ".join, axis=1) if own else ""
    return rows, axes


def scores_figure(summary: pandas.DataFrame) -> Figure:
    """A panel a task, a line for each encoder, constants, order and study, with 95 % intervals and
    baselines (paper, Figures 2, 5, 6).
    """
    rows, axes = _drawn(summary)
    panel = {"width": 320, "height": 280, **_lines(rows, axes)}
    own_scale = {"scale": {"y": "independent"}}
    body = {"facet": _name("task"), "columns": 3, "spec": panel, "resolve": own_scale}
    title = "Score against the share of heads that stay input-dependent, with 95 % intervals."
    return figure("scores", title, "summary", rows, body)


def score_panels(summary: pandas.DataFrame) -> list[Figure]:
    """Those panels, one by one, for a page."""
    rows, axes = _drawn(summary)
    panels = []
    for task, own in rows.groupby("task", sort=False):
        body = {**_PANEL, "height": 280, **_lines(own, axes)}
        panels.append(figure(f"scores-{task}", task, "summary", own, body, task=task))
    return panels


def drop_panels(summary: pandas.DataFrame) -> list[Figure]:
    """The relative drop of every encoder on every task, a panel for each fraction below 1: a row
    for each with its name above.
    """
    line = main_lines(summary).dropna(subset="relative_drop")
    shapes = {"beats its baselines": "circle", "inconclusive": "diamond"}
    lost = line.assign(
        name=line["task"] + " · " + line["encoder"],
        verdict=np.where(line["beats_baseline"], *shapes),
        heads=line["fraction"].map(fraction_headings(summary)),
    )
    low, middle = (number(of, "relative drop", **_PERCENT) for of in ("drop_low", "relative_drop"))
    zero = {"datum": 0, "type": "quantitative", "title": "relative drop", **_PERCENT}
    colour = {"color": _name("verdict", scale={"domain": [*shapes]})}
    shape = _name("verdict", scale={"domain": [*shapes], "range": [*shapes.values()]})
    interval = {"x": low, "x2": {"field": "drop_high"}, **colour}
    layers = [
        mark("rule", {"x": zero, "y": {"value": 0}, "y2": {"value": "height"}}),
        mark("rule", interval, where="isValid(datum.drop_low)", strokeWidth=2),
        mark("point", {"x": middle, "shape": shape, **colour}, **TOLD),
        mark("text", {"text": {"field": "name"}, "x": {"value": 2}}, align="left", dy=-14),
    ]
    panels = []
    for at, own in lost[lost["fraction"] < 1].groupby("heads", sort=False):
        rows = {"height": 40 * len(own), "encoding": {"y": _name("name", axis=None)}}
        body = {**_PANEL, **rows, "layer": layers}
        panels.append(figure(f"drop-{at}", at, "drops", own, body, heads=at))
    return panels


def encoders_figure(summary: pandas.DataFrame) -> Figure | None:
    """Each encoder's original score against its drop with the fewest heads (paper, Figure 3); None
    below two encoders.
    """
    points, _ = drops_over_tasks(summary)
    if len(points) < 2:
        return None
    title, both = "Encoders", points[["original", "relative_drop"]]
    if len(points) > 2 and both.nunique().min() > 1:
        title += f", r = {both.corr().iloc[0, 1]:.2f}"
    drop = f"relative drop {condition(summary['fraction'].min())}, mean over tasks"
    scale = {"zero": False, "padding": 48}
    encoding = {
        "x": number("relative_drop", drop, scale=scale, **_PERCENT),
        "y": number("original", "original score", scale=scale),
    }
    encoder = _name("encoder", legend=None)
    layers = [
        mark("point", {"color": encoder, "shape": encoder}, **TOLD),
        mark("text", {"text": {"field": "encoder"}}, dy=-12),
    ]
    body = {**_PANEL, "height": 280, "title": title, "encoding": encoding, "layer": layers}
    return figure("drops", title, "encoders", points, body)
