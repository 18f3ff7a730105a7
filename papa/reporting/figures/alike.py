"""Which heads are alike: the divergence of every pair as a heat map, by cluster."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pandas
from scipy.spatial.distance import squareform

from papa.descriptions.similarity import heads_by_cluster
from papa.descriptions.told import by_task, distinct
from papa.reporting.figures.chart import SCHEMA, Chart
from papa.reporting.figures.heatmaps import TOP, level_image

_SIDE = 264
ALIKE_NOTE = (
    "Maps: the divergence of every pair of heads, alike ones bright; numbered boxes are clusters."
)


def alike_charts(frame: pandas.DataFrame) -> tuple[Chart, ...]:
    """A map for each encoder and task of its own attention, of its constants, and of the replaced
    model where some heads stay input-dependent.
    """
    return tuple(
        _chart(f"{prefix}{of}", pairs)
        for prefix, own in by_task(frame)
        for of, pairs in distinct(own, "divergence").groupby("attention", sort=False)
    )


def _chart(title: str, pairs: pandas.DataFrame) -> Chart:
    heads = heads_by_cluster(pairs)
    order, largest = heads.pop("number"), float(pairs["divergence"].max()) or 1.0
    divergence = squareform(pairs["divergence"].to_numpy())[np.ix_(order, order)]
    levels = np.round(TOP * (1 - divergence / largest)).astype(np.uint8)
    image = f"data:image/png;base64,{base64.b64encode(level_image(levels)).decode()}"
    sizes = heads.groupby("cluster").size()
    ends = sizes.cumsum()
    boxes = pandas.DataFrame({"cluster": sizes.index, "start": ends - sizes, "end": ends})
    boxes = boxes[sizes.to_numpy() > 1].assign(middle=lambda box: (box["start"] + box["end"]) / 2)
    axis: dict[str, Any] = {
        "title": "heads by cluster",
        "type": "quantitative",
        "scale": {"domain": [0, len(heads)], "nice": False, "zero": False},
        "axis": {
            "values": boxes["middle"].tolist(),
            "labelExpr": "clusters[indexof(middles, datum.value)]",
            "labelOverlap": "greedy",
            "grid": False,
            "domain": False,
            "ticks": False,
        },
    }
    down = {
        **axis,
        "scale": {**axis["scale"], "reverse": True},
        "axis": {**axis["axis"], "labels": False},
    }
    colour = {
        "field": "divergence",
        "type": "quantitative",
        "scale": {"scheme": "cividis", "reverse": True, "domain": [0, largest]},
        "legend": {
            "title": "divergence, nats",
            "orient": "bottom",
            "direction": "horizontal",
            "gradientLength": 160,
            "tickCount": 3,
        },
    }
    middle = {"values": [{"middle": len(heads) / 2, "image": image, "divergence": 0}]}
    at_middle: dict[str, Any] = {"x": {"field": "middle", **axis}, "y": {"field": "middle", **down}}
    looks = {"width": _SIDE, "height": _SIDE, "smooth": False}
    box = {
        "x": {"field": "start", **axis},
        "x2": {"field": "end"},
        "y": {"field": "start", **down},
        "y2": {"field": "end"},
    }
    specification = {
        "$schema": SCHEMA,
        "description": f"{title}: divergence of every pair of heads, by cluster",
        "width": _SIDE,
        "height": _SIDE,
        "params": [
            {"name": "middles", "value": boxes["middle"].tolist()},
            {"name": "clusters", "value": boxes["cluster"].tolist()},
        ],
        "layer": [
            {
                "data": middle,
                "mark": {"type": "image", **looks},
                "encoding": {"url": {"field": "image"}, **at_middle},
            },
            {
                "data": middle,
                "mark": {"type": "point", "opacity": 0},
                "encoding": {**at_middle, "color": colour},
            },
            {
                "data": {"values": boxes[["start", "end"]].to_dict("records")},
                "mark": {"type": "rect", "fill": None, "stroke": "#d55e00", "strokeWidth": 1.5},
                "encoding": box,
            },
        ],
    }
    return Chart(f"alike-{title}", title, heads, specification)
