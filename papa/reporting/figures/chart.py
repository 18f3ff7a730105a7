"""A figure: a Vega-Lite specification with its data, drawn by the page or by vl-convert."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import vl_convert

from papa.errors import SpecError
from papa.reporting.figures.theme import FILE_FONT, LIGHT, config
from papa.storage.atomic import write_atomically

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_SCALE = 2
"""Pixels of a PNG for one unit of the drawing."""
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True)
class Chart:
    """One figure; a notebook shows it by itself, without network.

    Attributes:
        name: its identifier and the name of its files.
        title: what it shows.
        data: what it draws, as its CSV has it.
        specification: in Vega-Lite, without colours and type.
    """

    name: str
    title: str
    data: pandas.DataFrame
    specification: dict[str, Any]

    @property
    def csv(self) -> str:
        """The data as an address that a link downloads."""
        return csv_address(self.data)

    def svg(self) -> str:
        """The figure on white; equal data give equal text."""
        colours = config(LIGHT, FILE_FONT)
        drawn: str = vl_convert.vegalite_to_svg(_drawable(self.specification), config=colours)
        return drawn

    def png(self) -> bytes:
        """The SVG as pixels."""
        return _pixels(self.svg())

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
        write_atomically(folder / f"{self.name}.png", _pixels(drawn))

    _repr_svg_ = svg


def _pixels(drawn: str) -> bytes:
    pixels: bytes = vl_convert.svg_to_png(drawn, scale=_SCALE)
    return pixels


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


def records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where a number is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=10))
    return rows
