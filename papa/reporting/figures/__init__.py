"""Figures of a study: Vega-Lite specifications for the page, and as PNG and SVG."""
