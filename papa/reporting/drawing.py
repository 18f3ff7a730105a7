"""A figure: a frame, and Vega-Lite's specification that names it: a page holds data once."""

from __future__ import annotations

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
