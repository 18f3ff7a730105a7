"""Style, and figures as bytes that are the same for the same data."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")


def styled() -> AbstractContextManager[None]:
    """The package's style, for the block; drawing and saving both need it."""
    return matplotlib.style.context("papa.reporting.papa")


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
    return buffer.getvalue().decode()
