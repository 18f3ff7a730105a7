"""Figures in Vega-Lite: their parts, their look and their files. Figures share frames by name, so a
page holds each once. Altair is not used: its charts load scripts from the network in a notebook.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas
import vl_convert

from papa.errors import SpecError
from papa.files import write_atomically

Spec = dict[str, Any]
"""A specification of Vega-Lite, or a piece of one, as JSON."""
_QUIET = {"labelColor": "var(--quiet)", "labelFontSize": 12, "titleColor": "var(--quiet)"}
_TEXT = {**_QUIET, "titleFontSize": 12, "titleFontWeight": "normal"}
_LINE = dict.fromkeys(("gridColor", "domainColor", "tickColor"), "var(--line)")
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
        # Names of encoders are long.
        "labelLimit": 600,
        "columns": 1,
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
"""The configuration of figures on a page. Colours are variables of the page's style, so figures
follow the reader's light or dark setting, and the printer's.
"""
STYLE = (files("papa.reporting") / "templates" / "report.css").read_text()
# Files have no style sheet: the variables of its light setting become their values.
_LIGHT = dict(re.findall(r"(--[\w-]+): (#\w+)", STYLE.partition("}")[0]))
FILE: Spec = {
    **json.loads(re.sub(r"var\((.*?)\)", lambda match: _LIGHT[match[1]], json.dumps(PAGE))),
    # vl-convert brings the first; the others are as wide, so files look the same anywhere.
    "font": '"Liberation Sans", Arial, Helvetica, sans-serif',
    "background": "white",
}
FORMATS: dict[str, Callable[[str], str | bytes]] = {
    ".svg": str,
    ".png": lambda svg: vl_convert.svg_to_png(svg, scale=2),
    ".pdf": vl_convert.svg_to_pdf,
}
"""How a figure is saved, by the suffix of its file."""
_NOT_XML = re.compile(r"\\u(?:00(?:0[0-8bcef]|1[0-9a-f])|fff[ef])")
"""Names come from folders: a character that XML cannot hold would end the process."""


@dataclass(frozen=True)
class Figure:
    """A figure in Vega-Lite, without colours and fonts; a notebook shows it by itself.

    Attributes:
        name: Of its files.
        title: In words.
        source: The name of ``data`` in the specification; figures of a page may share it.
        data: The rows that it draws.
        specification: In Vega-Lite, without colours, fonts and data.
    """

    name: str
    title: str
    source: str
    data: pandas.DataFrame = field(repr=False)
    specification: Spec = field(repr=False)

    def svg(self) -> str:
        """Return the figure as SVG on white."""
        with_data = {**self.specification, "datasets": {self.source: rows_as_json(self.data)}}
        text = _NOT_XML.sub(r"\\ufffd", json.dumps(with_data))
        return vl_convert.vegalite_to_svg(text, config=FILE)

    def save(self, path: str | Path) -> None:
        """Write the figure to a ``.png``, ``.svg`` or ``.pdf`` file.

        Raises:
            SpecError: the name ends in none of them.
        """
        path = Path(path)
        if path.suffix not in FORMATS:
            raise SpecError(
                f"{path} has no known ending for a figure: give a .png, .svg or .pdf file"
            )
        write_atomically(path, FORMATS[path.suffix](self.svg()))

    _repr_svg_ = svg


def rows_as_json(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return rows as JSON values: None where a number is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=10))
    return rows


def rows_by_source(figures: Iterable[Figure]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that figures draw, without duplicates, by the source that their
    specifications name.
    """
    frames: dict[str, list[pandas.DataFrame]] = {}
    for figure in figures:
        frames.setdefault(figure.source, []).append(figure.data)
    return {
        source: rows_as_json(pandas.concat(parts).drop_duplicates())
        for source, parts in frames.items()
    }


PANEL = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
"""A figure as wide as the element of the page that holds it."""
TOOLTIP: Spec = {"content": "data"}
STEP = 18
"""The height in pixels of a point, or of the name of its row."""


def figure(
    name: str, title: str, source: str, data: pandas.DataFrame, body: Spec, **column_values: str
) -> Figure:
    """Return a figure of the rows in which columns have these values."""
    specification = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": title,
        "data": {"name": source},
        **body,
        "transform": [
            {"filter": {"field": column, "equal": value}} for column, value in column_values.items()
        ],
    }
    return Figure(name, title, source, data, specification)


def layer(kind: str, encoding: Spec, *, where: str = "", **properties: object) -> Spec:
    """Return a layer of marks for the rows in which the expression ``where`` holds."""
    marks: Spec = {"mark": {"type": kind, **properties}, "encoding": encoding}
    return {"transform": [{"filter": where}], **marks} if where else marks


def number(field: str, title: str | None = None, **properties: object) -> Spec:
    """Return a channel of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **properties}


def nominal(field: str, **properties: object) -> Spec:
    """Return a channel of names, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": None, "sort": None, **properties}


def domain(values: pandas.DataFrame, *included: float) -> Spec:
    """Return a scale from the smallest to the largest of all values, which panels share."""
    numbers = [*values.stack().dropna(), *included]
    lowest = min(numbers)
    highest = max(numbers)
    # 3 % keep points off the frame.
    margin = 0.03 * (highest - lowest) or 0.01
    return {"domain": [lowest - margin, highest + margin], "zero": False, "nice": True}
