"""Maps of heads: a score of every head, layer × head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas

from papa.reporting.figures.chart import Chart, layer, on_page, records, told, told_all
from papa.reporting.heads import HeadScore, HeadsOfEncoder

_ROW = 24
"""The height of a layer."""
_LEAST = 240
"""Width of a file, for its words."""


def head_maps(heads: HeadsOfEncoder) -> list[Chart]:
    """A map for each score of one encoder on one task.

    Colour is the end of a head's 95 % interval that is nearer to where the score says nothing, and
    no colour where the interval holds that. Scores that no such place is known of are coloured from
    their smallest to their largest.
    """
    return [_map(heads, score) for score in heads.scores()]


def heads_figure(heads: HeadsOfEncoder) -> Chart:
    """The map of the first score, as a file that says by itself what it shows."""
    first = heads.scores()[0]
    chart, (layers, count) = _map(heads, first), first.values.shape
    title = {"text": chart.title, "subtitle": first.legend, "anchor": "start"}
    size = {"width": max(_ROW * count, _LEAST), "height": _ROW * layers, "autosize": "pad"}
    specification = {**chart.specification, **size, "title": title}
    told_beside = f"{chart.title}. {' '.join(first.legend)}"
    return replace(chart, name="heads", title=told_beside, specification=specification)


def _map(heads: HeadsOfEncoder, score: HeadScore) -> Chart:
    layer_of, head_of = np.indices(score.values.shape)
    rows = pandas.DataFrame(
        {
            "layer": layer_of.flatten(),
            "head": head_of.flatten(),
            "score": score.values.flatten(),
            "low": score.low.flatten(),
            "high": score.high.flatten(),
            "nearer_end": score.nearer_end.flatten(),
        }
    )
    far = float(np.abs(rows["nearer_end"] - score.nothing).max()) or 1.0
    colour: dict[str, Any] = {"scheme": "cividis"}
    if not np.isnan(score.nothing):
        ends = [score.nothing - far, score.nothing, score.nothing + far]
        # White stays white in both themes; the ends are told apart by colour-blind readers.
        colour = {"domain": ends, "range": ["#b35806", "#f7f7f7", "#2166ac"]}
    title = f"{score.name}, {heads.encoder}, {heads.task}"
    axis = {"type": "ordinal", "axis": {"labelAngle": 0, "domain": False, "ticks": False}}
    shade = {
        "field": "nearer_end",
        "type": "quantitative",
        "title": score.name,
        "scale": colour,
        "legend": {"orient": "bottom", "gradientLength": 160, "tickCount": 3, "labelSeparation": 8},
    }
    columns = {"score": score.name, "low": "95 % from", "high": "to"}
    tooltip = [told("layer", "Layer"), told("head", "Head"), *told_all(columns, ".4f")]
    apart = f"datum.nearer_end !== {score.nothing}"
    specification = {
        **on_page(f"{title}: layer by head", _ROW * len(score.values)),
        "title": {"text": score.legend, "style": "caption", "anchor": "start"},
        "data": {"values": records(rows)},
        "encoding": {
            "x": {"field": "head", "title": "Head", **axis},
            "y": {"field": "layer", "title": "Layer", **axis},
        },
        "layer": [
            layer("rect", {"color": shade, "tooltip": tooltip}, stroke="#8a94a0", strokeWidth=0.5),
            layer("circle", {}, apart, size=9, color="#1d2733", opacity=1),
        ][: 2 if score.told_apart else 1],
    }
    name = f"heads-{score.name}-{heads.encoder}-{heads.task}"
    return Chart(name, title, rows, specification)
