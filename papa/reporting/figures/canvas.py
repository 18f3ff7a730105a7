"""Style, and figures as bytes that are the same for the same data."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@contextmanager
def styled() -> Iterator[None]:
    """The package's style, for the block; drawing and saving both need it.

    Names come from folders and files: nothing in them is mathematics, and what the font lacks is a box.
    """
    with matplotlib.style.context("papa.reporting.papa"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG."""
    buffer = io.BytesIO()
    with styled():
        FigureCanvasAgg(figure).print_figure(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def svg_text(figure: Figure) -> str:
    """The figure as SVG, without date and with stable identifiers: equal figures give equal text."""
    buffer = io.BytesIO()
    with styled():
        FigureCanvasSVG(figure).print_figure(buffer, format="svg", metadata={"Date": None, "Creator": None})
    # Drawn text stands in comments, too, and XML cannot hold every character of a name.
    return _NOT_XML.sub("\ufffd", buffer.getvalue().decode())
