"""Figures of a study in Vega-Lite: scores, drops, encoders, head orders, heads and matrices.

Each is built from a frame and its specification names that frame, so that a page holds data once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import vl_convert

from papa.errors import SpecError
from papa.reporting.wording import (
    condition,
    fraction_headings,
    metric_label,
    names_of,
    order_label,
    varying,
)
from papa.scores.drops import correlation, drops_over_tasks
from papa.scores.orders import BETTER, NOT_TOLD, WORSE
from papa.scores.summary import WORDS, main_lines
from papa.spec.methods import HEAD_SCORES
from papa.storage.atomic import write_atomically

Spec = dict[str, Any]
MARK = "†"
"""Marks drops of an encoder and task whose original score does not beat its baselines."""
FORMATS = ("svg", "png", "pdf")
_SCALE = 2
"""Pixels of a PNG for one unit of the drawing."""
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#b0578d", "#a87400", "#2f8fc4", "#4a4a4a"]
"""After Okabe and Ito: colour-blind readers tell them apart."""
_GRADIENT = re.compile(r'((?:id="|"url\(#)gradient_)(\d+)')
"""Vega counts gradients over all figures of a process."""
_NOT_XML = re.compile(r"\\u(?:00(?:0[0-8bcef]|1[0-9a-f])|fff[ef])")
"""Names come from folders: a character that XML cannot hold would end the process."""
_SIDE, _ROW = 200, 40


def config(ink: str, quiet: str, line: str, lines: Sequence[str], paper: str, font: str) -> Spec:
    """Colours and type: of a file, or variables of the page's style."""
    text = {"labelColor": quiet, "titleColor": quiet, "labelFontSize": 12, "titleFontSize": 12}
    text["titleFontWeight"] = "normal"
    return {
        "font": font,
        "background": paper,
        "axis": {**text, "gridColor": line, "domainColor": line, "tickColor": line},
        "axisX": {"labelAngle": 0},
        "axisY": {"domain": False, "ticks": False, "tickCount": 5},
        "legend": {**text, "labelColor": ink, "orient": "bottom", "labelLimit": 600, "columns": 3},
        "header": {"labelColor": ink, "labelFontSize": 13, "labelFontWeight": "bold"},
        "view": {"stroke": None},
        "range": {"category": list(lines)},
        "point": {"color": lines[0], "opacity": 1, "tooltip": {"content": "data"}},
        "rule": {"color": quiet},
        "text": {"color": ink},
        "title": {"color": ink, "subtitleColor": quiet, "fontSize": 13, "anchor": "start"},
    }


FILE = config(
    *("#1d2733", "#5b6775", "#d9dee4", _COLOURS, "white"),
    # vl-convert brings the first; the others are as wide, so files look the same anywhere.
    font='"Liberation Sans", Arial, Helvetica, sans-serif',
)
PAGE = config(
    *("var(--ink)", "var(--quiet)", "var(--line)"),
    [f"var(--line-{number})" for number in range(1, 8)],
    "transparent",
    font='system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif',
)
"""The page's style decides, so figures follow the reader's setting and the printer's."""


@dataclass(frozen=True)
class Figure:
    """A frame drawn as Vega-Lite says, without colours and type. A notebook shows it by itself.

    Attributes:
        name: of its files.
        source: what the specification calls the frame.
    """

    name: str
    title: str
    source: str
    data: pandas.DataFrame = field(repr=False)
    specification: Spec = field(repr=False)

    def _drawable(self) -> str:
        specification = {**self.specification, "datasets": {self.source: records(self.data)}}
        return _NOT_XML.sub(r"\\ufffd", json.dumps(specification))

    def svg(self) -> str:
        """On white; equal data give equal text."""
        drawn = vl_convert.vegalite_to_svg(self._drawable(), config=FILE)
        numbers: dict[str, int] = {}
        return _GRADIENT.sub(
            lambda found: f"{found[1]}{numbers.setdefault(found[2], len(numbers))}", drawn
        )

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends in ``.png``, ``.svg`` or ``.pdf``.

        Raises:
            SpecError: the name ends in none of them.
        """
        path, svg = Path(path), self.svg()
        match path.suffix:
            case ".svg":
                write_atomically(path, svg)
            case ".png":
                write_atomically(path, vl_convert.svg_to_png(svg, scale=_SCALE))
            case ".pdf":
                write_atomically(path, vl_convert.svg_to_pdf(svg))
            case _:
                raise SpecError(
                    f"a figure cannot be written to {path}: give a file that ends in .png, .svg or "
                    ".pdf"
                )

    _repr_svg_ = svg


def records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where a number is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=10))
    return rows


def _spec(source: str, description: str, body: Spec, **equal: str) -> Spec:
    """A specification of the rows whose columns are ``equal`` to values."""
    chosen = [{"filter": {"field": name, "equal": value}} for name, value in equal.items()]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": description,
        "data": {"name": source},
        **body,
        "transform": [*chosen, *body.get("transform", [])],
    }


_PANEL = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
"""As wide as its place on a page."""


def _mark(kind: str, encoding: Spec, where: str = "", **looks: Any) -> Spec:
    rows = {"transform": [{"filter": where}]} if where else {}
    return {**rows, "mark": {"type": kind, **looks}, "encoding": encoding}


def labelled(summary: pandas.DataFrame) -> pandas.DataFrame:
    """The summary with what figures show: ``heads``, the fraction in words, head orders in words,
    and ``mark`` at the lowest fraction of what beats no baseline.
    """
    lowest = summary.groupby(["encoder", "task"])["fraction"].transform("min")
    inconclusive = ~summary["beats_baseline"].astype(bool) & (summary["fraction"] == lowest)
    return summary.assign(
        heads=summary["fraction"].map(fraction_headings(summary)),
        order=summary["order"].map(order_label),
        mark=(inconclusive & (summary["fraction"] < 1)).map({True: MARK, False: ""}),
    )


def _scores(summary: pandas.DataFrame, axes: Sequence[str], metric: str) -> list[Spec]:
    """The layers of one task: a line for each value of the axes, the first as colour."""
    y = {"type": "quantitative", "scale": {"zero": False}, "title": metric}
    x = {
        "field": "heads",
        "type": "ordinal",
        "sort": list(fraction_headings(summary).values()),
        "title": "share of heads that stay input-dependent",
    }
    looks: Spec = {}
    for channel, axis in zip(("color", "strokeDash", "size"), axes, strict=False):
        values = [names_of(row, [axis]) for row in summary.drop_duplicates(axis).to_dict("records")]
        domain = [value for one in values for value in one.values()]
        looks[channel] = {"field": axis, "type": "nominal", "scale": {"domain": domain}}
        looks[channel]["title"] = None
    point = {**looks, **({"shape": looks["color"]} if axes else {})}
    layers = []
    for name, column in (("always one answer", "always_one_answer"), (WORDS, "word_embeddings")):
        if summary[column].notna().any():
            end = {"y": {"aggregate": "max", "field": column, **y}}
            of_encoder = axes[:1] == ["encoder"] and name == WORDS
            colour = {"color": looks["color"]} if of_encoder else {}
            layers.append(_mark("rule", {**end, **colour}, strokeDash=[2, 4]))
            side = {"align": "left", "dx": 2} if name != WORDS else {"align": "right", "dx": -2}
            at = {"x": {"value": 0 if name != WORDS else "width"}, "text": {"value": name}}
            layers.append(_mark("text", {**end, **at}, dy=-6, fontSize=10.5, **side))
    apart = {"xOffset": {"field": "line", "scale": {"range": [-9, 9]}}} if axes else {}
    interval = {"y": {"field": "low", **y}, "y2": {"field": "high"}, **looks}
    interval.pop("strokeDash", None)
    mean = {"y": {"field": "mean", **y}}
    lines = [
        _mark("line", {**mean, **looks}),
        _mark("rule", interval, "isValid(datum.low)", strokeWidth=1.5),
        _mark("point", {**mean, **point}, filled=True, size=60),
    ]
    dagger = {**mean, "text": {"field": "mark"}}
    if not summary["beats_baseline"].all():
        lines.append(_mark("text", dagger, "datum.mark !== ''", dx=11, fontSize=14))
    join = " + ', ' + ".join(f"datum.{axis}" for axis in axes) or "''"
    own = {"transform": [{"calculate": join, "as": "line"}], "encoding": {"x": x, **apart}}
    return [*layers, {**own, "layer": lines}]


def scores_figure(summary: pandas.DataFrame, name: str = "scores") -> Figure:
    """A panel a task, a line for each encoder, constants, order and study, with 95 % intervals and
    baselines (paper, Figures 2, 5, 6).
    """
    metrics = {metric_label(row) for row in summary.to_dict("records")}
    axes = varying(summary, ("encoder", "constants", "order", "study"))
    panel = {"width": 320, "height": 280}
    panel["layer"] = _scores(summary, axes, metrics.pop() if len(metrics) == 1 else "score")
    body = {
        "facet": {"field": "task", "type": "nominal", "title": None, "sort": None},
        "columns": 3,
        "spec": panel,
        "resolve": {"scale": {"y": "independent"}},
    }
    title = "Score against the share of heads that stay input-dependent, with 95 % intervals."
    return Figure(name, title, "summary", labelled(summary), _spec("summary", title, body))


def score_panels(summary: pandas.DataFrame, axis: str) -> list[Figure]:
    """The page's panels, a line for each value of one axis, with the first of all others."""
    first, panels = summary.iloc[0], []
    others = [name for name in ("constants", "order") if name != axis]
    lines = summary[(summary[others] == first[others]).all(axis=1)]
    fixed = {name: names_of(first, [name]).popitem()[1] for name in others}
    by = ["task"] if axis == "encoder" else ["task", "encoder"]
    for key, own in lines.groupby(by, sort=False):
        equal = dict(zip(by, key, strict=True)) | fixed
        title = " · ".join(key if summary["encoder"].nunique() > 1 else key[:1])
        layers = _scores(own, varying(lines, [axis]), metric_label(own.iloc[0]))
        body = {**_PANEL, "height": 260, "layer": layers}
        spec = _spec("summary", title, body, **equal)
        panels.append(Figure(f"{axis}-{title}", title, "summary", labelled(own), spec))
    return panels


def _rows(
    y: str, ends: tuple[str, str, str], x: Spec, verdict: str, shapes: dict[str, str]
) -> Spec:
    """A row for each ``y``, its name above: a difference with its interval, a shape a verdict."""
    middle, low, high = ends
    x = {"type": "quantitative", **x}
    domain = {"domain": list(shapes)}
    colour = {"field": verdict, "type": "nominal", "scale": domain, "title": None}
    shape = {**colour, "scale": {**domain, "range": list(shapes.values())}}
    across = {"x": {"field": low, **x}, "x2": {"field": high}, "color": colour}
    name = {"text": {"field": y}, "x": {"value": 2}}
    return {
        "encoding": {"y": {"field": y, "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            _mark("rule", {"x": {"datum": 0, **x}, "y": {"value": 0}, "y2": {"value": "height"}}),
            _mark("rule", across, f"isValid(datum.{low})", strokeWidth=2),
            _mark(
                "point",
                {"x": {"field": middle, **x}, "color": colour, "shape": shape},
                filled=True,
                size=90,
            ),
            _mark("text", name, align="left", dy=-14, fontSize=12),
        ],
    }


def drop_panels(summary: pandas.DataFrame) -> list[Figure]:
    """The relative drop of every encoder on every task, a panel for each fraction below 1."""
    lines = labelled(main_lines(summary)).dropna(subset="relative_drop")
    verdicts = {True: "beats its baselines", False: "inconclusive"}
    lost = lines.assign(
        name=lines["task"] + " · " + lines["encoder"], verdict=lines["beats_baseline"].map(verdicts)
    )
    x = {"title": "relative drop", "axis": {"format": "~%", "tickCount": 6}}
    shapes = dict(zip(verdicts.values(), ("circle", "diamond"), strict=True))
    rows = _rows("name", ("relative_drop", "drop_low", "drop_high"), x, "verdict", shapes)
    return [
        Figure(
            f"drop-{at}",
            at,
            "drops",
            own,
            _spec("drops", f"drop at {at}", _PANEL | rows | {"height": _ROW * len(own)}, heads=at),
        )
        for at, own in lost[lost["fraction"] < 1].groupby("heads", sort=False)
    ]


def encoders_figure(summary: pandas.DataFrame) -> Figure | None:
    """Each encoder's original score against its drop with the fewest heads (paper, Figure 3); None
    below two encoders.
    """
    points, _ = drops_over_tasks(summary)
    if len(points) < 2:
        return None
    r = correlation(points)
    title = f"Encoders{'' if np.isnan(r) else f', r = {r:.2f}'}"
    drop = f"relative drop {condition(summary['fraction'].min())}, mean over tasks"
    axis = {"format": "~%", "tickCount": 6}
    x = {
        "field": "relative_drop",
        "title": drop,
        "axis": axis,
        "scale": {"zero": False, "padding": 60},
    }
    y = {"field": "original", "title": "original score", "scale": {"zero": False, "padding": 24}}
    number, encoder = (
        {"type": "quantitative"},
        {"field": "encoder", "type": "nominal", "legend": None},
    )
    body = {
        **_PANEL,
        "height": 280,
        "title": title,
        "encoding": {"x": {**x, **number}, "y": {**y, **number}},
        "layer": [
            _mark("point", {"color": encoder, "shape": encoder}, filled=True, size=90),
            _mark("text", {"text": {"field": "encoder"}}, dy=-12),
        ],
    }
    return Figure("drops", title, "encoders", points, _spec("encoders", title, body))


def order_panels(each_way: pandas.DataFrame) -> list[Figure]:
    """Other orders less the first, by the first constants, for each encoder and task."""
    first = each_way["order"].iloc[0]
    rows = each_way[
        (each_way["other"] == first) & (each_way["constants"] == each_way["constants"].iloc[0])
    ]
    rows = rows.sort_values("difference", ascending=False, kind="stable")
    rows = rows.assign(name=rows["order"].map(order_label))
    x = {"title": f"mean score less that by {order_label(first)}", "scale": {"padding": 12}}
    shapes = {BETTER: "triangle-up", WORSE: "triangle-down", NOT_TOLD: "circle"}
    panel = (
        _PANEL
        | {"height": _ROW * rows["name"].nunique()}
        | _rows("name", ("difference", "low", "high"), x, "verdict", shapes)
    )
    return [
        Figure(
            f"orders-{task}-{encoder}",
            f"{task} · {encoder}",
            "orders",
            own,
            _spec("orders", f"{task} · {encoder}", panel, task=task, encoder=encoder),
        )
        for (task, encoder), own in rows.groupby(["task", "encoder"], sort=False)
    ]


def method_label(method: str) -> str:
    """A score of heads in words: ``λ``, ``gradient``, a name of the study's own."""
    if method in HEAD_SCORES:
        return HEAD_SCORES[method].label
    return "λ" if method == "lambda" else method


def head_panels(heads: pandas.DataFrame) -> list[Figure]:
    """A map for each score of one encoder on one task, layer by head: a dot where the 95 % interval
    leaves out where the score says nothing, and the colour of the interval's nearer end; where no
    such place is known, the colour of the score.
    """
    panels = []
    for (encoder, task, method), own in heads.groupby(["encoder", "task", "method"], sort=False):
        nothing = 0.5 if method == "lambda" else getattr(HEAD_SCORES.get(method), "nothing", np.nan)
        known = not np.isnan(nothing) and own["low"].notna().all()
        scale: Spec = {"scheme": "cividis"}
        text = [f"Colour: {method_label(method)} itself."]
        nearer = own["score"]
        if known:
            nearer = (
                own["low"]
                .clip(lower=nothing)
                .where(own["low"] > nothing, own["high"].clip(upper=nothing))
            )
            far = float((nearer - nothing).abs().max()) or 1.0
            # White stays white in both themes; the ends are told apart by colour-blind readers.
            scale = {
                "domain": [nothing - far, nothing, nothing + far],
                "range": ["#b35806", "#f7f7f7", "#2166ac"],
            }
            dots, count = int((nearer != nothing).sum()), len(own)
            text = [
                f"Dot, colour: the 95 % interval leaves {nothing:g} out.",
                f"{dots} of {count} heads; by chance about {0.05 * count:.2g} would.",
            ]
        drawn = own.assign(nearer=nearer)
        colour = {
            "field": "nearer",
            "type": "quantitative",
            "title": method_label(method),
            "scale": scale,
        }
        body = {
            "width": {"step": 24},
            "height": {"step": 24},
            "title": {"text": text, "fontSize": 11, "fontWeight": "normal"},
            "encoding": {
                name: {"field": row, "type": "ordinal"}
                for name, row in (("x", "head"), ("y", "layer"))
            },
            "layer": [
                _mark(
                    "rect",
                    {"color": colour},
                    stroke="#8a94a0",
                    strokeWidth=0.5,
                    tooltip={"content": "data"},
                ),
                *(
                    [
                        _mark(
                            "circle",
                            {},
                            f"datum.nearer !== {nothing}",
                            size=9,
                            color="#1d2733",
                            opacity=1,
                        )
                    ]
                    if known
                    else []
                ),
            ],
        }
        name = f"{method_label(method)} · {encoder} · {task}"
        spec = _spec("heads", name, body, encoder=encoder, task=task, method=method)
        panels.append(Figure(f"heads-{name}", name, "heads", drawn, spec))
    return panels


def matrix(labels: Sequence[str]) -> Spec:
    """One matrix of the frame ``entries``: row, column, weight; ``labels`` are the slots' names."""
    every = max(1, len(labels) // 8)
    named = [name for at, name in enumerate(labels) if not name.isdigit() or at % every == 0]
    place = {
        "type": "ordinal",
        "sort": list(labels),
        "axis": {"values": named, "labelOverlap": "greedy"},
    }
    colour = {
        "field": "weight",
        "type": "quantitative",
        "scale": {"type": "sqrt", "scheme": "cividis"},
    }
    return {
        "width": _SIDE,
        "height": _SIDE,
        "mark": {"type": "rect", "tooltip": {"content": "data"}},
        "encoding": {
            "x": {"field": "to", "title": "slot attended to", **place},
            "y": {"field": "from", "title": "slot that attends", **place},
            "color": {**colour, "title": "mean attention"},
        },
    }


def matrices_figure(entries: pandas.DataFrame, labels: Sequence[str]) -> Figure:
    """A panel a head (paper, Figure 4), on one colour scale. Columns head, from, to, weight."""
    title = "Constant matrices of chosen heads."
    body = {
        "facet": {"field": "head", "type": "nominal", "title": None, "sort": None},
        "columns": 4,
        "spec": matrix(labels),
    }
    return Figure("matrices", title, "entries", entries, _spec("entries", title, body))


def datasets(figures: Iterable[Figure]) -> dict[str, list[dict[str, Any]]]:
    """The rows of all figures, each once, by the names that specifications use."""
    frames: dict[str, list[pandas.DataFrame]] = {}
    for figure in figures:
        frames.setdefault(figure.source, []).append(figure.data)
    return {name: records(pandas.concat(own).drop_duplicates()) for name, own in frames.items()}
