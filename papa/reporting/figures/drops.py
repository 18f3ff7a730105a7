"""Original score against relative drop over encoders (paper, Section 4.2, Figure 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy
import pandas
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from papa.reporting.figures.canvas import MARKERS, styled
from papa.reporting.summary import LINE
from papa.reporting.wording import axis_label, condition, joined, varying


@dataclass(frozen=True)
class Drops:
    """Each encoder's original score and its drop at the lowest fraction, means over the tasks that all share.

    Attributes:
        points: columns ``model, original, relative_drop``, one row per encoder; empty where no task is left.
        fraction: the lowest input-dependent fraction.
        line: constants and order, where the study has several; else empty.
        tasks: the tasks of the means.
        left_out: the other tasks and why.
    """

    points: pandas.DataFrame
    fraction: float
    line: str
    tasks: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def correlation(self) -> float:
        """Pearson's r of original score and drop; NaN below three encoders or where one does not vary."""
        original, drop = self.points["original"], self.points["relative_drop"]
        if len(self.points) < 3 or original.nunique() < 2 or drop.nunique() < 2:
            return math.nan
        return float(numpy.corrcoef(original, drop)[0, 1])

    @property
    def condition(self) -> str:
        """The fraction of the drop, in words."""
        return condition(self.fraction)

    @property
    def caption(self) -> str:
        """What the figure shows and what the means leave out."""
        over = f"means over {joined(self.tasks)}" if len(self.tasks) > 1 else f"on {self.tasks[0]}"
        drop = f"relative drop {self.condition}" + (f" ({self.line})" if self.line else "")
        left_out = [f"{task} ({reason})" for task, reason in self.left_out.items()]
        rest = f" Left out: {joined(left_out)}." if left_out else ""
        return f"Each encoder's original score against its {drop}, {over}.{rest}"


def drops_over_tasks(summary: pandas.DataFrame) -> Drops:
    """Average original scores and relative drops over tasks, each task with equal weight.

    A task is left out for all encoders where one of them does not beat its baseline there (column
    ``beats_baseline``), or where a share of the score means nothing.

    Args:
        summary: as ``papa.reporting.summary.summarise`` returns it; of several constants or orders the first
            is taken.
    """
    lowest = float(summary["fraction"].min())
    first = summary.iloc[0]
    line = summary[(summary["constants"] == first["constants"]) & (summary["order"] == first["order"])]
    originals = line.loc[line["fraction"] == 1.0, [*LINE, "mean", "beats_baseline"]].rename(
        columns={"mean": "original"}
    )
    dropped = line.loc[(line["fraction"] == lowest) & (lowest < 1), [*LINE, "relative_drop"]]
    pairs = originals.merge(dropped, on=LINE)
    reasons = {task: _reason(here) for task, here in pairs.groupby("task", sort=False)}
    left_out = {str(task): reason for task, reason in reasons.items() if reason}
    kept = pairs[~pairs["task"].isin(list(left_out))]
    points = kept.groupby("model", sort=False)[["original", "relative_drop"]].mean().reset_index()
    axes = varying(summary, ("constants", "order") if lowest > 0 else ("constants",))
    drawn = ", ".join(axis_label(axis, first[axis]) for axis in axes)
    return Drops(points, lowest, drawn, tuple(kept["task"].unique()), left_out)


def _reason(pairs: pandas.DataFrame) -> str | None:
    """Why a task is left out of the means; None where it is not."""
    if (pairs["original"] <= 0).any() or pairs["relative_drop"].isna().any():
        return "a drop in percent needs positive scores"
    beaten = pairs.loc[pairs["beats_baseline"].eq(False), "model"]
    if len(beaten) == 0:
        return None
    return f"{joined(beaten)} {'do' if len(beaten) > 1 else 'does'} not beat the baseline"


def drops_figure(drops: Drops) -> Figure:
    """An encoder is a point: its mean relative drop to the right, its mean original score upwards.

    The title gives Pearson's r where there are three encoders or more.

    Args:
        drops: with at least one task.
    """
    several = len(drops.tasks) > 1
    with styled():
        colours = rcParams["axes.prop_cycle"].by_key()["color"]
        figure = Figure(figsize=(6.4, 4.2))
        panel = figure.subplots()
        for number, point in enumerate(drops.points.to_dict("records")):
            panel.plot(
                100 * point["relative_drop"],
                point["original"],
                marker=MARKERS[number % len(MARKERS)],
                color=colours[number % len(colours)],
                markersize=9,
                linestyle="none",
            )
        panel.margins(0.15)
        _name_points(panel, drops.points)
        panel.set_xlabel(f"{'mean ' if several else ''}relative drop {drops.condition} (%)")
        panel.set_ylabel(f"mean original score over {len(drops.tasks)} tasks" if several else "original score")
        title = "" if several else drops.tasks[0]
        r = "" if math.isnan(drops.correlation) else f"r = {drops.correlation:.2f}"
        panel.set_title(f"{title} ({r})" if title and r else title or r)
    return figure


def _name_points(panel: Axes, points: pandas.DataFrame) -> None:
    """Write each encoder's name beside its point, on the side towards the middle of the panel."""
    low, high = panel.get_xlim()
    for point in points.to_dict("records"):
        drop = 100 * point["relative_drop"]
        right = drop > (low + high) / 2
        panel.annotate(
            point["model"],
            (drop, point["original"]),
            xytext=(-9 if right else 9, 0),
            textcoords="offset points",
            ha="right" if right else "left",
            va="center",
            fontsize=9,
        )
