"""Score against the share of heads that stay input-dependent (paper, Figures 2, 5 and 6)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from papa.reporting.figures.canvas import LINES, MARKERS, styled
from papa.reporting.wording import axis_label, fixed_caption, fraction_headings, metric_label, present, varying

_PANEL = (4.4, 3.4)
_PANELS_PER_ROW = 3
_LEGEND_ROW = 0.2
_LINE_AXES = ("model", "constants", "order", "study")


def scores_figure(summary: pandas.DataFrame) -> Figure:
    """One panel per task, one line per model, constants kind and head order, with 95 % intervals.

    The study's fractions are evenly spaced, from all heads input-dependent (left) to none (right).

    Args:
        summary: as ``papa.reporting.summary.summarise`` returns it.
    """
    tasks = list(summary["task"].unique())
    columns = min(len(tasks), _PANELS_PER_ROW)
    rows = math.ceil(len(tasks) / columns)
    with styled():
        size = (_PANEL[0] * columns + (1.8 if columns == 1 else 0), _PANEL[1] * rows + 0.9)
        figure = Figure(figsize=size)
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel, task in zip(panels, tasks, strict=False):
            _draw_task(panel, summary[summary["task"] == task], summary)
        for empty in panels[len(tasks) :]:
            empty.set_visible(False)
        _legend(figure, fixed_caption(summary))
    return figure


def _draw_task(panel: Axes, points: pandas.DataFrame, summary: pandas.DataFrame) -> None:
    fractions = sorted(summary["fraction"].unique(), reverse=True)
    positions = {fraction: position for position, fraction in enumerate(fractions)}
    lines = list(_lines(points, summary))
    for number, (label, colour, marker, line, members) in enumerate(lines):
        # Lines are set a little apart, or the intervals of close lines would hide each other.
        shift = 0.0 if len(lines) == 1 else 0.16 * (number / (len(lines) - 1) - 0.5)
        panel.errorbar(
            [positions[fraction] + shift for fraction in members["fraction"]],
            members["mean"],
            yerr=[
                (members["mean"] - members["low"]).fillna(0),
                (members["high"] - members["mean"]).fillna(0),
            ],
            color=colour,
            marker=marker,
            linestyle=line,
            elinewidth=1.0,
            label=label,
        )
    panel.set_title(str(points["task"].iloc[0]))
    panel.set_ylabel(metric_label(points.iloc[0]))
    panel.set_xlabel("share of heads that stay input-dependent")
    labels = [label.replace(" ", "\n", 1) for label in fraction_headings(summary).values()]
    panel.set_xticks(range(len(fractions)), labels)
    panel.set_xlim(-0.3, len(fractions) - 0.7)
    panel.margins(y=0.12)


def _lines(
    points: pandas.DataFrame, summary: pandas.DataFrame
) -> Iterator[tuple[str, str, str, str, pandas.DataFrame]]:
    """Label, colour, marker, dashes and points of every line; its look is the same in every panel."""
    axes = varying(summary, _LINE_AXES)
    colours = rcParams["axes.prop_cycle"].by_key()["color"]
    by_colour = {value: index for index, value in enumerate(summary[axes[0]].unique())} if axes else {}
    dashed = list(summary[axes[1:]].drop_duplicates().itertuples(index=False, name=None)) if axes[1:] else [()]
    present_axes = present(summary, _LINE_AXES)
    for key, members in points.groupby(present_axes, sort=False):
        values = dict(zip(present_axes, key, strict=True))
        hue = by_colour[values[axes[0]]] if axes else 0
        dash = dashed.index(tuple(values[axis] for axis in axes[1:])) if axes[1:] else 0
        # Matplotlib leaves labels that begin with "_" out of legends.
        label = re.sub("^_", " _", ", ".join(axis_label(axis, values[axis]) for axis in axes))
        ordered = members.sort_values("fraction", ascending=False)
        yield (
            label,
            colours[hue % len(colours)],
            MARKERS[hue % len(MARKERS)],
            LINES[dash % len(LINES)],
            ordered,
        )


def _legend(figure: Figure, caption: str) -> None:
    handles: dict[str, Any] = {}
    for panel in figure.axes:
        drawn, labels = panel.get_legend_handles_labels()
        handles.update(zip(labels, drawn, strict=True))
    if any(handles):
        rows = math.ceil(len(handles) / _fitting_legend(figure, handles))
        figure.set_figheight(figure.get_figheight() + _LEGEND_ROW * (rows - 1))
    if caption:
        figure.suptitle(caption, fontsize=10, color="#555555")


def _fitting_legend(figure: Figure, handles: Mapping[str, Any]) -> int:
    """Draw the legend in as many columns as fit; how many."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    for columns in range(min(len(handles), 3), 0, -1):
        legend = figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns, handlelength=4
        )
        if columns == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            break
        legend.remove()
    return columns
