"""A figure: a frame, and Vega-Lite's specification that names it: a page holds data once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas
import vl_convert

from papa.errors import SpecError
from papa.storage.atomic import write_atomically

Spec = dict[str, Any]
FORMATS = ("svg", "png", "pdf")
_SCALE = 2
"""Pixels of a PNG for one unit of the drawing."""
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#b0578d", "#a87400", "#2f8fc4", "#4a4a4a"]
"""After Okabe and Ito: colour-blind readers tell them apart."""
_GRADIENT = re.compile(r'((?:id="|"url\(#)gradient_)(\d+)')
"""Vega counts gradients over all figures of a process."""
_NOT_XML = re.compile(r"\\u(?:00(?:0[0-8bcef]|1[0-9a-f])|fff[ef])")
"""Names come from folders: a character that XML cannot hold would end the process."""


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


def datasets(figures: Iterable[Figure]) -> dict[str, list[dict[str, Any]]]:
    """The rows of all figures, each once, by the names that specifications use."""
    frames: dict[str, list[pandas.DataFrame]] = {}
    for figure in figures:
        frames.setdefault(figure.source, []).append(figure.data)
    return {name: records(pandas.concat(own).drop_duplicates()) for name, own in frames.items()}
