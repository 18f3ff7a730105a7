"""A figure: a Vega-Lite specification with its data, drawn by the page or by vl-convert."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import vl_convert

from papa.errors import SpecError
from papa.storage.atomic import write_atomically

Colours = dict[str, Any]
LIGHT: Colours = {
    "ink": "#1d2733",
    "quiet": "#5b6775",
    "line": "#d9dee4",
    "lines": ["#0072b2", "#d55e00", "#009e73", "#b0578d", "#a87400", "#2f8fc4", "#4a4a4a"],
    "background": "white",
    "paper": "white",
}
DARK: Colours = {
    "ink": "#e7ebf0",
    "quiet": "#a3afbc",
    "line": "#37424f",
    "lines": ["#56b4e9", "#f2925a", "#3fc79a", "#e39cc6", "#e6b84a", "#8fd0f5", "#d0d0d0"],
    "background": "transparent",
    "paper": "#14191f",
}
"""After Okabe and Ito: colour-blind readers tell them apart, on either background."""
OF_THE_PAGE: Colours = {
    "ink": "var(--ink)",
    "quiet": "var(--quiet)",
    "line": "var(--line)",
    "lines": [f"var(--line-{number})" for number in range(1, 8)],
    "background": "transparent",
    "paper": "var(--paper)",
}
"""The page's style decides, so figures follow the reader's setting and the printer's."""
_ROW = 40
"""Pixels of a row with a name above it."""
FILE_FONT = '"Liberation Sans", Arial, Helvetica, sans-serif'
"""vl-convert brings the first; the others are as wide, so files look the same anywhere."""
_PAGE_FONT = 'system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif'


def config(colours: Colours, font: str = _PAGE_FONT) -> dict[str, Any]:
    """Vega-Lite's configuration."""
    ink, quiet, line = colours["ink"], colours["quiet"], colours["line"]
    size = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    text = {"labelColor": quiet, "titleColor": quiet, **size}
    lines = {"gridColor": line, "domainColor": line, "tickColor": line}
    return {
        "font": font,
        "background": colours["background"],
        "axis": {**text, **lines, "titlePadding": 8},
        "axisY": {"domain": False, "ticks": False, "tickCount": 5},
        "legend": {
            **text,
            "labelColor": ink,
            "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
            "layout": {"bottom": {"direction": "vertical", "margin": 6, "offset": 10}},
        },
        "view": {"stroke": None},
        "range": {"category": colours["lines"]},
        "point": {"color": colours["lines"][0]},
        "rule": {"color": quiet},
        "tick": {"color": quiet},
        "text": {"color": ink},
        "style": {
            "row-label": {"fontSize": 12},
            "halo": {"stroke": colours["paper"], "strokeWidth": 4, "strokeJoin": "round"},
            "caption": {"font": font, "fontSize": 12, "fontWeight": "normal", "fill": quiet},
        },
        "title": {"color": ink, "fontSize": 13, "subtitleColor": quiet, "subtitleFontSize": 11},
    }


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_SCALE = 2
"""Pixels of a PNG for one unit of the drawing."""
_GRADIENT = re.compile(r'((?:id="|"url\(#)gradient_)(\d+)')
"""Vega counts gradients over all figures of a process."""
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True)
class Chart:
    """One figure, whose name is that of its files: the data as its CSV has them, and Vega-Lite's
    specification without colours and type. A notebook shows it by itself, without network.
    """

    name: str
    title: str
    data: pandas.DataFrame
    specification: dict[str, Any]

    @property
    def csv(self) -> str:
        return csv_address(self.data)

    def svg(self) -> str:
        """The figure on white; equal data give equal text."""
        colours = config(LIGHT, FILE_FONT)
        drawn = vl_convert.vegalite_to_svg(_drawable(self.specification), config=colours)
        numbers: dict[str, int] = {}
        return _GRADIENT.sub(
            lambda found: f"{found[1]}{numbers.setdefault(found[2], len(numbers))}", drawn
        )

    def png(self) -> bytes:
        """The SVG as pixels."""
        return vl_convert.svg_to_png(self.svg(), scale=_SCALE)

    def save(self, path: str | Path) -> None:
        """Write the figure to a file that ends in ``.png`` or ``.svg``.

        Raises:
            SpecError: the name ends in neither.
        """
        path = Path(path)
        if path.suffix not in (".png", ".svg"):
            raise SpecError(
                f"a figure cannot be written to {path}: give a file that ends in .png or .svg"
            )
        write_atomically(path, self.png() if path.suffix == ".png" else self.svg())

    def write(self, folder: Path) -> None:
        """Write ``<name>.svg`` and ``<name>.png``."""
        drawn = self.svg()
        write_atomically(folder / f"{self.name}.svg", drawn)
        pixels = vl_convert.svg_to_png(drawn, scale=_SCALE)
        write_atomically(folder / f"{self.name}.png", pixels)

    _repr_svg_ = svg


def _drawable(part: Any) -> Any:
    """Names come from folders and files: a character that XML cannot hold would end the process."""
    match part:
        case str():
            return _NOT_XML.sub("\ufffd", part)
        case dict():
            return {name: _drawable(value) for name, value in part.items()}
        case list():
            return [_drawable(value) for value in part]
    return part


def csv_address(frame: pandas.DataFrame) -> str:
    """A table as an address that a link downloads."""
    content = base64.b64encode(frame.to_csv(index=False).encode()).decode()
    return f"data:text/csv;charset=utf-8;base64,{content}"


def on_page(description: str, height: int) -> dict[str, Any]:
    """What all figures of the page have in common: as wide as their place."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def layer(mark: str, encoding: dict[str, Any], where: str = "", **looks: Any) -> dict[str, Any]:
    """A layer of marks, of the rows for which the expression ``where`` holds."""
    parts = {"transform": where and [{"filter": where}], "encoding": encoding}
    drawn = {name: part for name, part in parts.items() if part}
    return {**drawn, "mark": {"type": mark, **looks}}


def told(field: str, title: str = "", format: str = "") -> dict[str, str]:
    """A line of what is told of a point under the mouse."""
    named = {"field": field, "title": title, "format": format}
    return {name: value for name, value in named.items() if value}


def told_all(fields: Mapping[str, str], format: str) -> list[dict[str, str]]:
    """Lines of numbers, by their fields and titles."""
    return [told(field, title, format) for field, title in fields.items()]


def verdict_rows(
    description: str,
    rows: pandas.DataFrame,
    x: dict[str, Any],
    difference: Sequence[str],
    verdicts: Mapping[str, str],
    legend: str,
    tooltip: list[dict[str, str]],
) -> dict[str, Any]:
    """A row for each ``name``, with its ``verdict``: a difference from 0 with its interval, by
    their three columns, and a shape for the verdict.
    """
    names, (column, low, high) = list(dict.fromkeys(rows["name"])), difference
    domain = {"domain": list(verdicts)}
    below = {"title": legend, "orient": "bottom"}
    verdict = {"field": "verdict", "type": "nominal", "scale": domain, "legend": below}
    shape = {**verdict, "scale": {**domain, "range": list(verdicts.values())}}
    x = {"type": "quantitative", **x}
    interval = {"x": {"field": low, **x}, "x2": {"field": high}, "color": verdict}
    point = {"x": {"field": column, **x}, "color": verdict, "shape": shape, "tooltip": tooltip}
    name = {"text": {"field": "name"}, "x": {"value": 2}}
    return {
        **on_page(description, _ROW * len(names)),
        "data": {"values": records(rows)},
        "encoding": {"y": {"field": "name", "type": "nominal", "sort": names, "axis": None}},
        "layer": [
            layer("tick", {"x": {"datum": 0, **x}}, size=12, thickness=1),
            layer("rule", interval, f"isValid(datum.{low})", strokeWidth=2),
            layer("point", point, filled=True, size=90, opacity=1),
            layer("text", name, align="left", dy=-13, style="row-label"),
        ],
    }


def records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where a number is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=10))
    return rows
