"""Constant matrices as heat maps: small images that carry their values, as a page reads entries
back; those of chosen heads in a file (paper, Figure 4), or that of one.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import numpy
import pandas
import torch
import vl_convert
from jaxtyping import Float, UInt8
from PIL import Image

from papa.reporting.figures.chart import SCHEMA, Chart, told
from papa.reporting.heads import HeadsOfEncoder
from papa.spec.orders import Head

MOST_ENTRIES = 2_400_000
"""Of all matrices on one page: 12 × 12 heads of 128 × 128 slots stay below 5 MB."""
MOST_ROWS = 160
"""Of one matrix: more are not told apart on a screen."""
UNSEEN = 255
"""The level of an entry that the average never saw."""
TOP = 254
"""The level of a matrix's largest entry."""

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
_BOLD_SPECIAL = {
    "condition": {"test": "indexof(special, datum.value) >= 0", "value": "bold"},
    "value": "normal",
}

SlotRange = tuple[int, int]
"""First slot and the one after the last."""


@dataclass(frozen=True)
class HeatMaps:
    """The matrices of one encoder on one task, quantised.

    An entry's value is ``largest[layer, head] · (level / TOP)²``: the square root keeps faint
    diagonals apart, and the error stays below 0.4 % of the matrix's largest entry.

    Attributes:
        ranges: the slots of each row and column; slots that the average never saw are left out.
        special: the rows of [CLS] and [SEP], and which of the two.
    """

    ranges: tuple[SlotRange, ...]
    special: Mapping[int, str]
    levels: UInt8[numpy.ndarray, "layers heads rows rows"]
    largest: Float[numpy.ndarray, "layers heads"]

    @property
    def labels(self) -> list[str]:
        """The slots of each row in words: ``[CLS]``, ``17``, ``17–18``."""
        return [
            self.special.get(row) or (str(start) if end == start + 1 else f"{start}–{end - 1}")
            for row, (start, end) in enumerate(self.ranges)
        ]


def image_address(levels: UInt8[numpy.ndarray, "rows rows"]) -> str:
    """``level_image`` as an address that holds it."""
    return f"data:image/png;base64,{base64.b64encode(level_image(levels)).decode()}"


def level_image(levels: UInt8[numpy.ndarray, "rows rows"]) -> bytes:
    """Levels as a PNG of one byte a pixel; its palette is the colour map, unseen is transparent."""
    image = Image.fromarray(levels, mode="P")
    image.putpalette(_palette())
    buffer = io.BytesIO()
    image.save(buffer, format="png", compress_level=9, transparency=UNSEEN)
    return buffer.getvalue()


@cache
def _palette() -> list[int]:
    """Red, green and blue of the levels 0 to TOP as Vega draws them in a heat map, and grey."""
    fill = {"scale": "colours", "field": "data"}
    colours = {"name": "colours", "type": "linear", "domain": [0, TOP]}
    marks = {"type": "rect", "from": {"data": "levels"}, "encode": {"enter": {"fill": fill}}}
    specification = {
        "$schema": "https://vega.github.io/schema/vega/v6.json",
        "data": [{"name": "levels", "values": list(range(TOP + 1))}],
        "scales": [{**colours, "range": {"scheme": "cividis"}}],
        "marks": [marks],
    }
    fills = re.findall(
        r"rgb\((\d+), (\d+), (\d+)\)", json.dumps(vl_convert.vega_to_scenegraph(specification))
    )
    return [*(int(part) for fill in fills for part in fill), 128, 128, 128]


def heat_maps(sets: Sequence[HeadsOfEncoder]) -> list[HeatMaps]:
    """Quantise the matrices of all encoders and tasks.

    Where they are too many for one page, one row stands for several slots and an entry for the mean
    of those seen; [CLS] and [SEP] keep rows of their own.
    """
    for width in count(1):
        found = [(heads, _ranges(heads, width)) for heads in sets]
        entries = sum(heads.matrices.shape[:2].numel() * len(own) ** 2 for heads, own in found)
        if entries <= MOST_ENTRIES and all(len(own) <= MOST_ROWS for _, own in found):
            break
    return [_quantised(heads, own) for heads, own in found]


def _ranges(heads: HeadsOfEncoder, width: int) -> tuple[SlotRange, ...]:
    """The seen slots, ``width`` neighbours together."""
    seen = (heads.seen.any(dim=0) | heads.seen.any(dim=1)).tolist()
    ranges: list[SlotRange] = []
    for slot in (slot for slot, is_seen in enumerate(seen) if is_seen):
        start, end = ranges[-1] if ranges else (-1, -1)
        alone = {slot, start} & set(heads.special)
        if end == slot and end - start < width and not alone:
            ranges[-1] = (start, slot + 1)
        else:
            ranges.append((slot, slot + 1))
    return tuple(ranges)


def _quantised(heads: HeadsOfEncoder, ranges: tuple[SlotRange, ...]) -> HeatMaps:
    groups = torch.zeros(len(ranges), heads.seen.shape[0])
    for row, (start, end) in enumerate(ranges):
        groups[row, start:end] = 1
    counts = groups @ heads.seen.float() @ groups.T
    sums = groups @ (heads.matrices.float() * heads.seen) @ groups.T
    means = sums / counts.clamp(min=1)
    largest = means.amax(dim=(-2, -1))
    relative = means / largest.where(largest > 0, torch.ones_like(largest))[..., None, None]
    levels = (
        (TOP * relative.clamp(min=0).sqrt()).round().where(counts > 0, torch.tensor(float(UNSEEN)))
    )
    starts = [start for start, _ in ranges]
    names = {slot: "[SEP]" if number else "[CLS]" for number, slot in enumerate(heads.special)}
    special = {row: names[start] for row, start in enumerate(starts) if start in names}
    return HeatMaps(ranges, special, levels.to(torch.uint8).numpy(), largest.numpy())


def matrices_figure(heads: HeadsOfEncoder) -> Chart:
    """The heads that show a pattern most, side by side on one colour scale; brightness follows the
    square root. The axes name [CLS] and [SEP] and count the other slots that were seen.
    """
    chosen = example_heads(heads)
    (maps,) = heat_maps([heads])
    largest = max(float(maps.largest[at]) for at in chosen)
    panels = [
        _panel(f"{name}: layer {at[0]}, head {at[1]}", _on_one_scale(maps, at, largest), maps)
        for at, name in chosen.items()
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
    return image_address(shared)


def _panel(title: str, image: str, maps: HeatMaps) -> dict[str, Any]:
    rows = len(maps.ranges)
    special = list(maps.special)
    even = range(0, rows, max(1, round(rows / 5)))
    ticks = [
        *special,
        *(row for row in even if all(abs(row - slot) >= _NEAR * rows for slot in special)),
    ]
    axis = {
        "values": [row + 0.5 for row in ticks],
        "tickCount": len(ticks),
        "labelExpr": "labels[floor(datum.value)]",
        "labelFontWeight": _BOLD_SPECIAL,
        "labelFontSize": 10,
        "labelOverlap": False,
        "grid": False,
        "domain": False,
        "ticks": True,
    }
    x, y = square(rows, axis, _TO, _FROM)
    drawn = picture(image, rows, _SIDE, x, y, _COLOUR)
    return {"title": {"text": title, "anchor": "start"}, **drawn}


def square(
    rows: int, axis: dict[str, Any], across: str | None, down: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The axes of a square of as many rows as columns, with their titles: x, and y downwards."""
    scale = {"domain": [0, rows], "nice": False, "zero": False}
    x = {"type": "quantitative", "scale": scale, "axis": axis, "title": across}
    return x, {**x, "scale": {**scale, "reverse": True}, "title": down}


def picture(
    image: str, rows: int, side: int, x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any]
) -> dict[str, Any]:
    """The image of a square of numbers on its axes, with the legend of its colours."""
    looks = {"type": "image", "width": side, "height": side, "smooth": False}
    middle = {"x": {"field": "middle", **x}, "y": {"field": "middle", **y}}
    return {
        "width": side,
        "height": side,
        "data": {"values": [{"middle": rows / 2, "image": image, colour["field"]: 0}]},
        "layer": [
            {"mark": looks, "encoding": {"url": {"field": "image"}, **middle}},
            {"mark": {"type": "point", "opacity": 0}, "encoding": {"color": colour}},
        ],
    }


def example_heads(heads: HeadsOfEncoder) -> dict[Head, str]:
    """The heads that show a pattern most, each once: diagonal, [CLS], [SEP], and the least
    concentrated one.
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
        "labelFontWeight": _BOLD_SPECIAL,
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
