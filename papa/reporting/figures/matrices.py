"""Constant matrices as heat maps: of chosen heads in a file (paper, Figure 4), or of one."""

from __future__ import annotations

import base64
from typing import Any

import numpy
import pandas

from papa.reporting.figures.chart import SCHEMA, Chart, told
from papa.reporting.figures.heatmaps import UNSEEN, HeatMaps, heat_maps, level_image
from papa.reporting.heads import HeadsOfEncoder
from papa.spec.orders import Head

_SIDE = 210
_NEAR = 0.07
"""Of a side: closer names of slots would touch."""
_COLOUR = {
    "field": "weight",
    "type": "quantitative",
    "scale": {"type": "sqrt", "scheme": "cividis", "domain": {"expr": "[0, largest]"}},
    "legend": {
        "title": "mean attention",
        "orient": "bottom",
        "direction": "horizontal",
        "format": ".3~g",
    },
}
_FROM, _TO = "slot that attends", "slot attended to"


def matrices_figure(heads: HeadsOfEncoder) -> Chart:
    """The heads that show a pattern most, side by side on one colour scale; brightness follows the
    square root.

    Slots that no matrix has ever seen are left out; the axes name [CLS] and [SEP] and count the
    other slots.
    """
    chosen = example_heads(heads)
    (maps,) = heat_maps([heads])
    largest = max(float(maps.largest[at]) for at in chosen)
    panels = [
        _panel(
            f"{name}: layer {layer}, head {head}", _on_one_scale(maps, (layer, head), largest), maps
        )
        for (layer, head), name in chosen.items()
    ]
    specification = {
        "$schema": SCHEMA,
        "title": {"text": f"{heads.encoder} · {heads.task}", "style": "caption", "anchor": "start"},
        "params": [
            {"name": "labels", "value": maps.labels},
            {"name": "special", "value": [row + 0.5 for row in maps.special]},
            {"name": "largest", "value": largest or 1.0},
        ],
        "hconcat": panels,
    }
    shown = pandas.DataFrame(
        [(*at, name) for at, name in chosen.items()], columns=["layer", "head", "pattern"]
    )
    return Chart("matrices", "Constant matrices of chosen heads.", shown, specification)


def _on_one_scale(maps: HeatMaps, head: Head, largest: float) -> str:
    """A matrix as the address of its image, bright as the largest entry of all panels."""
    levels = maps.levels[head]
    share = (maps.largest[head] / largest) ** 0.5 if largest else 1.0
    shared = numpy.where(levels == UNSEEN, UNSEEN, numpy.round(levels * share)).astype(numpy.uint8)
    return f"data:image/png;base64,{base64.b64encode(level_image(shared)).decode()}"


def _panel(title: str, image: str, maps: HeatMaps) -> dict[str, Any]:
    rows = len(maps.ranges)
    special = list(maps.special)
    even = range(0, rows, max(1, round(rows / 5)))
    ticks = [
        *special,
        *(row for row in even if all(abs(row - slot) >= _NEAR * rows for slot in special)),
    ]
    axis = {
        "type": "quantitative",
        "axis": {
            "values": [row + 0.5 for row in ticks],
            "tickCount": len(ticks),
            "labelExpr": "labels[floor(datum.value)]",
            "labelFontWeight": _bold_special(),
            "labelFontSize": 10,
            "labelOverlap": False,
            "grid": False,
            "domain": False,
            "ticks": True,
        },
    }
    across = {"domain": [0, rows], "nice": False, "zero": False}
    return {
        "title": {"text": title, "anchor": "start"},
        "width": _SIDE,
        "height": _SIDE,
        "data": {"values": [{"middle": rows / 2, "image": image, "weight": 0}]},
        "layer": [
            {
                "mark": {"type": "image", "width": _SIDE, "height": _SIDE, "smooth": False},
                "encoding": {
                    "url": {"field": "image"},
                    "x": {"field": "middle", **axis, "scale": across, "title": _TO},
                    "y": {
                        "field": "middle",
                        **axis,
                        "scale": {**across, "reverse": True},
                        "title": _FROM,
                    },
                },
            },
            {"mark": {"type": "point", "opacity": 0}, "encoding": {"color": _COLOUR}},
        ],
    }


def _bold_special() -> dict[str, Any]:
    return {
        "condition": {"test": "indexof(special, datum.value) >= 0", "value": "bold"},
        "value": "normal",
    }


def example_heads(heads: HeadsOfEncoder) -> dict[Head, str]:
    """The heads that show a pattern most: diagonal, [CLS], [SEP], and the least concentrated one;
    from 0.

    A head that leads in two of them is there once.
    """
    patterns = heads.patterns
    wanted = {
        "diagonal": patterns.diagonal_mass,
        "[CLS]": patterns.cls_mass,
        "[SEP]": patterns.sep_mass,
        "spread": -patterns.largest_entry,
    }
    chosen: dict[Head, str] = {}
    for name, strength in wanted.items():
        chosen.setdefault(divmod(int(strength.argmax()), strength.shape[1]), name)
    return chosen


def matrix_specification() -> dict[str, Any]:
    """One head's matrix; the page adds its ``cells``, the ``labels`` of slots and ``largest``."""
    ordinal = {"type": "ordinal", "scale": {"paddingInner": 0, "paddingOuter": 0}}
    axis = {
        "values": {"expr": "ticks"},
        "labelExpr": "labels[datum.value]",
        "labelFontWeight": _bold_special(),
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
            "y": {"field": "row", **ordinal, "axis": axis, "title": _FROM},
            "x": {"field": "column", **ordinal, "axis": {**axis, "orient": "top"}, "title": _TO},
            "color": _COLOUR,
            "tooltip": [
                told("from", _FROM),
                told("to", _TO),
                told("weight", "mean attention", ".3~g"),
            ],
        },
    }
