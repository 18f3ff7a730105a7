"""Figures of a study, from its tables: scores, drops, encoders, head orders, heads and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas

from papa.reporting.drawing import Figure, Spec
from papa.reporting.wording import (
    MARK,
    condition,
    fraction_headings,
    metric_label,
    order_label,
    varying,
)
from papa.scores.drops import correlation, drops_over_tasks
from papa.scores.orders import BETTER, NOT_TOLD, WORSE
from papa.scores.summary import ONE_ANSWER, WORDS, main_lines
from papa.spec.methods import HEAD_SCORES

_PANEL = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
"""As wide as its place on a page."""
_ROW = 40


def _figure(
    name: str, title: str, source: str, data: pandas.DataFrame, body: Spec, **equal: str
) -> Figure:
    """A figure of the rows whose columns are ``equal`` to values."""
    chosen = [{"filter": {"field": column, "equal": value}} for column, value in equal.items()]
    schema = "https://vega.github.io/schema/vega-lite/v6.json"
    named = {"$schema": schema, "description": title, "data": {"name": source}}
    return Figure(name, title, source, data, {**named, **body, "transform": chosen})


_SHORT = 40
"""Letters of a name of which several stand beside each other below a figure."""


def _mark(kind: str, encoding: Spec, *, where: str = "", **looks: Any) -> Spec:
    rows = {"transform": [{"filter": where}]} if where else {}
    return {**rows, "mark": {"type": kind, **looks}, "encoding": encoding}


def _number(field: str, title: str | None = None, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _name(field: str, domain: Sequence[str] | None = None, **more: Any) -> Spec:
    """A channel of names, in their order."""
    scale = {"scale": {"domain": list(domain)}} if domain else {}
    return {"field": field, "type": "nominal", "title": None, "sort": None, **scale, **more}


def labelled(summary: pandas.DataFrame) -> pandas.DataFrame:
    """The summary with what figures show: ``heads``, the fraction in words, head orders in words,
    and ``mark`` at the lowest fraction of what beats no baseline.
    """
    lowest = summary.groupby(["encoder", "task"])["fraction"].transform("min")
    marked = ~summary["beats_baseline"].astype(bool) & (summary["fraction"] == lowest)
    return summary.assign(
        heads=summary["fraction"].map(fraction_headings(summary)),
        order=summary["order"].map(order_label),
        mark=(marked & (summary["fraction"] < 1)).map({True: MARK, False: ""}),
    )


def _lines(rows: pandas.DataFrame, heads: Sequence[str], axes: list[str], metric: str) -> Spec:
    """A line for each value of the axes: the first as colour and shape, the others as dashes; with
    intervals, baselines and daggers.
    """
    joins = {"line": axes, "rest": axes[1:]}
    named = {
        what: list(dict.fromkeys(", ".join(row) for row in rows[own].itertuples(index=False)))
        for what, own in joins.items()
    }
    looks: Spec = {"detail": _name("line")}
    if axes:
        names = list(rows[axes[0]].unique())
        looks["color"] = _name(axes[0], names)
        if max(map(len, names)) > _SHORT:
            looks["color"]["legend"] = {"columns": 1}
    if axes[1:]:
        looks["strokeDash"] = _name("rest", named["rest"], legend={"symbolType": "stroke"})
    shape = {"shape": looks["color"]} if axes else {}
    ordinal: Spec = {"field": "heads", "type": "ordinal", "sort": list(heads)}
    x = {**ordinal, "title": "share of heads that stay input-dependent"}
    place: Spec = {"x": x}
    if axes:
        x["scale"] = {"paddingInner": 0.75, "paddingOuter": 0.4}
        place["xOffset"] = _name("line", named["line"])

    def y(field: str, **more: Any) -> Spec:
        return {"y": _number(field, metric, scale={"zero": False}, **more)}

    layers = []
    for column, name, align, dx in (
        ("always_one_answer", ONE_ANSWER, "left", 2),
        ("word_embeddings", WORDS, "right", -2),
    ):
        if rows[column].notna().any():
            own = axes[:1] == ["encoder"] and name == WORDS
            baseline = {**y(column, aggregate="max"), **({"color": looks["color"]} if own else {})}
            layers.append(_mark("rule", baseline, strokeDash=[2, 4]))
            at = {"x": {"value": 0 if name != WORDS else "width"}, "text": {"value": name}}
            text = {**y(column, aggregate="max"), **at}
            layers.append(_mark("text", text, align=align, dx=dx, dy=-6, fontSize=10.5))
    interval = {**y("low"), "y2": {"field": "high"}, "color": looks.get("color", {"value": None})}
    interval = {name: channel for name, channel in interval.items() if channel != {"value": None}}
    lines = [
        _mark("line", {**y("mean"), **looks}),
        _mark("rule", interval, where="isValid(datum.low)", strokeWidth=1.5),
        _mark("point", {**y("mean"), **looks, **shape}, filled=True, size=60),
    ]
    if (rows["mark"] != "").any():
        dagger = {**y("mean"), "text": {"field": "mark"}}
        lines.append(_mark("text", dagger, where="datum.mark !== ''", dx=11, fontSize=14))
    texts = {what: " + ', ' + ".join(f"datum.{one}" for one in own) for what, own in joins.items()}
    calculated = [{"calculate": text or "''", "as": what} for what, text in texts.items()]
    return {"layer": [*layers, {"transform": calculated, "encoding": place, "layer": lines}]}


def scores_figure(summary: pandas.DataFrame, name: str = "scores") -> Figure:
    """A panel a task, a line for each encoder, constants, order and study, with 95 % intervals and
    baselines (paper, Figures 2, 5, 6).
    """
    rows, heads = labelled(summary), list(fraction_headings(summary).values())
    metrics = {metric_label(row) for row in summary.to_dict("records")}
    axes = varying(rows, ("encoder", "constants", "order", "study"))
    panel = _lines(rows, heads, axes, metrics.pop() if len(metrics) == 1 else "score")
    body = {
        "facet": _name("task"),
        "columns": 3,
        "spec": {"width": 320, "height": 280, **panel},
        "resolve": {"scale": {"y": "independent"}},
    }
    title = "Score against the share of heads that stay input-dependent, with 95 % intervals."
    return _figure(name, title, "summary", rows, body)


def score_panels(summary: pandas.DataFrame, axis: str) -> list[Figure]:
    """The page's panels, a line for each value of one axis, with the first of all others."""
    rows, heads = labelled(summary), list(fraction_headings(summary).values())
    others = [name for name in ("constants", "order") if name != axis]
    fixed, panels = rows.iloc[0][others].to_dict(), []
    rows = rows[(rows[others] == rows.iloc[0][others]).all(axis=1)]
    by = ["task"] if axis == "encoder" else ["task", "encoder"]
    for key, own in rows.groupby(by, sort=False):
        title = " · ".join(key if summary["encoder"].nunique() > 1 else key[:1])
        lines = _lines(own, heads, varying(rows, [axis]), metric_label(own.iloc[0]))
        body = {**_PANEL, "height": 260, **lines}
        equal = dict(zip(by, key, strict=True)) | fixed
        panels.append(_figure(f"{axis}-{title}", title, "summary", own, body, **equal))
    return panels


def _rows(rows: int, ends: Sequence[str], x: Spec, shapes: dict[str, str]) -> Spec:
    """A row for each ``name``, above it: a difference with its interval, and a shape for each
    ``verdict``.
    """
    middle, low, high = (_number(end, **x) for end in ends)
    colour = _name("verdict", list(shapes))
    shape = {**colour, "scale": {"domain": list(shapes), "range": list(shapes.values())}}
    zero = {
        "x": {**middle, "field": None, "datum": 0},
        "y": {"value": 0},
        "y2": {"value": "height"},
    }
    del zero["x"]["field"]
    text = {"text": {"field": "name"}, "x": {"value": 2}}
    point = {"x": middle, "color": colour, "shape": shape}
    interval = {"x": low, "x2": {"field": high["field"]}, "color": colour}
    layers = [
        _mark("rule", zero),
        _mark("rule", interval, where=f"isValid(datum.{low['field']})", strokeWidth=2),
        _mark("point", point, filled=True, size=90),
        _mark("text", text, align="left", dy=-14, fontSize=12),
    ]
    return {
        **_PANEL,
        "height": _ROW * rows,
        "encoding": {"y": _name("name", axis=None)},
        "layer": layers,
    }


def drop_panels(summary: pandas.DataFrame) -> list[Figure]:
    """The relative drop of every encoder on every task, a panel for each fraction below 1."""
    lines = labelled(main_lines(summary)).dropna(subset="relative_drop")
    verdicts = {True: "beats its baselines", False: "inconclusive"}
    names = lines["task"] + " · " + lines["encoder"]
    lost = lines.assign(name=names, verdict=lines["beats_baseline"].map(verdicts))
    x = {"title": "relative drop", "axis": {"format": "~%", "tickCount": 6}}
    shapes = dict(zip(verdicts.values(), ("circle", "diamond"), strict=True))
    ends, panels = ("relative_drop", "drop_low", "drop_high"), []
    for at, own in lost[lost["fraction"] < 1].groupby("heads", sort=False):
        body = _rows(len(own), ends, x, shapes)
        panels.append(_figure(f"drop-{at}", at, "drops", own, body, heads=at))
    return panels


def encoders_figure(summary: pandas.DataFrame) -> Figure | None:
    """Each encoder's original score against its drop with the fewest heads (paper, Figure 3); None
    below two encoders.
    """
    points, _ = drops_over_tasks(summary)
    if len(points) < 2:
        return None
    r, axis = correlation(points), {"format": "~%", "tickCount": 6}
    title = f"Encoders{'' if np.isnan(r) else f', r = {r:.2f}'}"
    drop = f"relative drop {condition(summary['fraction'].min())}, mean over tasks"
    wide = {"zero": False, "padding": 60}
    encoding = {
        "x": _number("relative_drop", drop, axis=axis, scale=wide),
        "y": _number("original", "original score", scale={"zero": False, "padding": 24}),
    }
    encoder = _name("encoder", legend=None)
    layers = [
        _mark("point", {"color": encoder, "shape": encoder}, filled=True, size=90),
        _mark("text", {"text": {"field": "encoder"}}, dy=-12),
    ]
    body = {**_PANEL, "height": 280, "title": title, "encoding": encoding, "layer": layers}
    return _figure("drops", title, "encoders", points, body)


def order_panels(each_way: pandas.DataFrame) -> list[Figure]:
    """Other orders less the first, by the first constants, for each encoder and task."""
    first, kind = each_way[["order", "constants"]].iloc[0]
    rows = each_way[(each_way["other"] == first) & (each_way["constants"] == kind)]
    rows = rows.sort_values("difference", ascending=False, kind="stable")
    rows = rows.assign(name=rows["order"].map(order_label))
    x = {"title": f"mean score less that by {order_label(first)}", "scale": {"padding": 12}}
    shapes, panels = {BETTER: "triangle-up", WORSE: "triangle-down", NOT_TOLD: "circle"}, []
    for (task, encoder), own in rows.groupby(["task", "encoder"], sort=False):
        title, equal = f"{task} · {encoder}", {"task": task, "encoder": encoder}
        body = _rows(len(own), ("difference", "low", "high"), x, shapes)
        panels.append(_figure(f"orders-{title}", title, "orders", own, body, **equal))
    return panels


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
        label, count = method_label(method), len(own)
        nothing = 0.5 if method == "lambda" else getattr(HEAD_SCORES.get(method), "nothing", np.nan)
        known = not np.isnan(nothing) and own["low"].notna().all()
        nearer = np.clip(nothing, own["low"], own["high"]) if known else own["score"]
        text = [f"Colour: {label} itself."]
        scale: Spec = {"scheme": "cividis"}
        layers = []
        if known:
            far = float((nearer - nothing).abs().max()) or 1.0
            # White stays white in both themes; the ends are told apart by colour-blind readers.
            colours = ["#b35806", "#f7f7f7", "#2166ac"]
            scale = {"domain": [nothing - far, nothing, nothing + far], "range": colours}
            text = [
                f"Dot, colour: the 95 % interval leaves {nothing:g} out.",
                f"{(nearer != nothing).sum()} of {count} heads; by chance about "
                f"{0.05 * count:.2g} would.",
            ]
            dot = {"size": 9, "color": "#1d2733", "opacity": 1}
            layers = [_mark("circle", {}, where=f"datum.nearer !== {nothing}", **dot)]
        colour = {"color": _number("nearer", label, scale=scale)}
        looks: Spec = {"stroke": "#8a94a0", "strokeWidth": 0.5, "tooltip": {"content": "data"}}
        body = {
            **{side: {"step": 24} for side in ("width", "height")},
            "title": {"text": text, "fontSize": 11, "fontWeight": "normal"},
            "encoding": {
                "x": {"field": "head", "type": "ordinal"},
                "y": {"field": "layer", "type": "ordinal"},
            },
            "layer": [_mark("rect", colour, **looks), *layers],
        }
        name, equal = f"{label} · {encoder} · {task}", {"encoder": encoder, "task": task}
        data = own.assign(nearer=nearer)
        panels.append(_figure(f"heads-{name}", name, "heads", data, body, **equal, method=method))
    return panels


def matrix(labels: Sequence[str]) -> Spec:
    """One matrix of the frame ``entries``: from, to, weight; ``labels`` are the slots' names."""
    every = max(1, len(labels) // 8)
    named = [name for at, name in enumerate(labels) if not name.isdigit() or at % every == 0]
    axis = {"values": named, "labelOverlap": "greedy"}
    place = {"type": "ordinal", "sort": list(labels), "axis": axis}
    scale = {"type": "sqrt", "scheme": "cividis"}
    encoding = {
        "x": {"field": "to", "title": "slot attended to", **place},
        "y": {"field": "from", "title": "slot that attends", **place},
        "color": _number("weight", "mean attention", scale=scale),
    }
    return {"width": 200, "height": 200, **_mark("rect", encoding, tooltip={"content": "data"})}


def matrices_figure(entries: pandas.DataFrame, labels: Sequence[str]) -> Figure:
    """A panel a head (paper, Figure 4), on one colour scale. Columns head, from, to, weight."""
    body = {"facet": _name("head"), "columns": 4, "spec": matrix(labels)}
    return _figure("matrices", "Constant matrices of chosen heads.", "entries", entries, body)
