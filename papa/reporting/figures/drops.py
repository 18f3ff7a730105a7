"""Original score against relative drop over encoders (paper, Section 4.2, Figure 3)."""

from __future__ import annotations

import math

import numpy
import pandas
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from papa.reporting.figures.canvas import MARKERS, styled
from papa.reporting.labels import METRICS, fraction_label


def drops_points(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Each encoder's original score and its drop at the lowest fraction, by task, constants kind and order.

    Returns:
        Columns ``task, constants, order, model, metric, original, relative_drop``; empty without fraction 1.
    """
    lowest = summary["fraction"].min()
    keys = ["model", "task", "constants", "order"]
    originals = summary.loc[summary["fraction"] == 1.0, [*keys, "mean"]].rename(columns={"mean": "original"})
    dropped = summary.loc[summary["fraction"] == lowest, [*keys, "metric", "relative_drop"]]
    points = dropped.merge(originals, on=keys).dropna()
    return points[["task", "constants", "order", "model", "metric", "original", "relative_drop"]]


def correlation(first: pandas.Series, second: pandas.Series) -> float:
    """Pearson's correlation; NaN below three points or where one side does not vary."""
    if len(first) < 3 or first.nunique() < 2 or second.nunique() < 2:
        return math.nan
    return float(numpy.corrcoef(first, second)[0, 1])


def drops_figure(summary: pandas.DataFrame) -> Figure:
    """One panel a task: an encoder is a point, its original score to the right, its relative drop upwards.

    The title gives Pearson's r where there are three encoders or more.

    Args:
        summary: of a study with several encoders; of several constants or orders the first is drawn.
    """
    points = drops_points(summary)
    first = points.iloc[0]
    points = points[(points["constants"] == first["constants"]) & (points["order"] == first["order"])]
    tasks = list(points["task"].unique())
    models = list(points["model"].unique())
    lowest = fraction_label(summary["fraction"].min())
    with styled():
        colours = rcParams["axes.prop_cycle"].by_key()["color"]
        columns = min(len(tasks), 3)
        rows = math.ceil(len(tasks) / columns)
        figure = Figure(figsize=(4.4 * columns, 3.6 * rows + 0.6))
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel, task in zip(panels, tasks, strict=False):
            here = points[points["task"] == task]
            for point in here.to_dict("records"):
                number = models.index(point["model"])
                panel.plot(
                    point["original"],
                    100 * point["relative_drop"],
                    marker=MARKERS[number % len(MARKERS)],
                    color=colours[number % len(colours)],
                    markersize=9,
                    linestyle="none",
                    label=point["model"],
                )
            r = correlation(here["original"], here["relative_drop"])
            panel.set_title(task if math.isnan(r) else f"{task} (r = {r:.2f})")
            panel.set_xlabel(f"original {METRICS.get(here['metric'].iloc[0], here['metric'].iloc[0])}")
            panel.set_ylabel(f"relative drop at {lowest} (%)")
            panel.margins(0.15)
        for empty in panels[len(tasks) :]:
            empty.set_visible(False)
        handles: dict[str, Artist] = {}
        for panel in figure.axes:
            drawn, labels = panel.get_legend_handles_labels()
            handles.update(zip(labels, drawn, strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), 4))
    return figure
