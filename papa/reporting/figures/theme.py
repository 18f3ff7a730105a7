"""Colours and type of all figures."""

from __future__ import annotations

from typing import Any

Colours = dict[str, Any]
LIGHT: Colours = {
    "ink": "#1d2733",
    "quiet": "#5b6775",
    "line": "#d9dee4",
    "lines": ["#0072b2", "#d55e00", "#009e73", "#b0578d", "#a87400", "#2f8fc4", "#4a4a4a"],
    "background": "white",
}
DARK: Colours = {
    "ink": "#e7ebf0",
    "quiet": "#a3afbc",
    "line": "#37424f",
    "lines": ["#56b4e9", "#f2925a", "#3fc79a", "#e39cc6", "#e6b84a", "#8fd0f5", "#d0d0d0"],
    "background": "transparent",
}
"""After Okabe and Ito: colour-blind readers tell them apart, on either background."""
OF_THE_PAGE: Colours = {
    "ink": "var(--ink)",
    "quiet": "var(--quiet)",
    "line": "var(--line)",
    "lines": [f"var(--line-{number})" for number in range(1, 8)],
    "background": "transparent",
}
"""The page's style decides, so figures follow the reader's setting and the printer's."""
FILE_FONT = '"Liberation Sans", Arial, Helvetica, sans-serif'
"""vl-convert brings the first; the others are as wide, so files look the same anywhere."""
_PAGE_FONT = 'system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif'


def config(colours: Colours, font: str = _PAGE_FONT) -> dict[str, Any]:
    """Vega-Lite's configuration."""
    ink, quiet, line = colours["ink"], colours["quiet"], colours["line"]
    text = {
        "labelColor": quiet,
        "titleColor": quiet,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }
    return {
        "font": font,
        "background": colours["background"],
        "axis": {
            **text,
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "titlePadding": 8,
        },
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
        "text": {"color": ink},
        "style": {
            "row-label": {"fontSize": 12},
            "caption": {"font": font, "fontSize": 12, "fontWeight": "normal", "fill": quiet},
        },
        "title": {"color": ink, "fontSize": 13, "subtitleColor": quiet, "subtitleFontSize": 11},
    }
