"""Figures of a study, drawn without any display or global figure state."""

from papa.reporting.figures.canvas import png_bytes, svg_text
from papa.reporting.figures.drops import Drops, drops_figure, drops_over_tasks
from papa.reporting.figures.matrices import HeadMatrix, matrices_figure
from papa.reporting.figures.scores import scores_figure

__all__ = [
    "Drops",
    "HeadMatrix",
    "drops_figure",
    "drops_over_tasks",
    "matrices_figure",
    "png_bytes",
    "scores_figure",
    "svg_text",
]
