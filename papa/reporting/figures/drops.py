"""Relative drops: against original scores (paper, Figure 3), and of every encoder and task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import pandas

from papa.reporting.figures.chart import (
    SCHEMA,
    Chart,
    layer,
    on_page,
    records,
    told,
    told_all,
    verdict_rows,
)
from papa.reporting.summary import LINE, main_lines
from papa.reporting.wording import (
    condition,
    fraction_headings,
    joined,
    names_of,
    percent_label,
    varying,
)


@dataclass(frozen=True)
class Drops:
    """Each encoder's original score and its drop at the lowest fraction, means over the tasks that
    all share.

    Attributes:
        points: columns ``encoder, original, relative_drop``, one row per encoder, and the other
            reading of an average drop, that of the mean score: ``drop_of_means``.
        line: constants and order, where the study has several; else empty.
        left_out: the other tasks and why.
    """

    points: pandas.DataFrame
    fraction: float
    line: str
    tasks: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def correlation(self) -> float:
        """Pearson's r of original score and drop; NaN below three encoders or without variance."""
        original, drop = self.points["original"], self.points["relative_drop"]
        if len(self.points) < 3 or original.nunique() < 2 or drop.nunique() < 2:
            return math.nan
        return float(numpy.corrcoef(original, drop)[0, 1])

    @property
    def caption(self) -> str:
        """What the figure shows and what the means leave out."""
        over = f"means over {joined(self.tasks)}" if len(self.tasks) > 1 else f"on {self.tasks[0]}"
        line = f" ({self.line})" if self.line else ""
        drop = f"relative drop {condition(self.fraction)}{line}"
        left_out = [f"{task} ({reason})" for task, reason in self.left_out.items()]
        rest = f" Left out: {joined(left_out)}." if left_out else ""
        return f"Each encoder's original score against its {drop}, {over}.{rest}{self._readings}"

    @property
    def _readings(self) -> str:
        """Both readings of an average over tasks, by encoder."""
        if len(self.tasks) < 2:
            return ""
        both = [
            f"{point['encoder']} {percent_label(point['relative_drop'])} and "
            f"{percent_label(point['drop_of_means'])}"
            for point in self.points.to_dict("records")
        ]
        return (
            " The mean of the tasks' drops, which is drawn, and the drop of their mean score: "
            f"{'; '.join(both)}."
        )


def drops_over_tasks(summary: pandas.DataFrame) -> Drops:
    """Average original scores and relative drops over tasks, each task with equal weight; of
    several constants or orders the first is taken.

    A task is left out for all encoders where one of them does not beat its baseline there (column
    ``beats_baseline``), or where a share of the score means nothing.
    """
    lowest = float(summary["fraction"].min())
    first, line = summary.iloc[0], main_lines(summary)
    pairs = line[(line["fraction"] == lowest) & (lowest < 1) & line["original"].notna()]
    reasons = {task: _reason(here) for task, here in pairs.groupby("task", sort=False)}
    left_out = {str(task): reason for task, reason in reasons.items() if reason}
    kept = pairs[~pairs["task"].isin(list(left_out))]
    columns = ["original", "mean", "relative_drop"]
    points = kept.groupby("encoder", sort=False)[columns].mean().reset_index()
    points["drop_of_means"] = 1 - points.pop("mean") / points["original"]
    axes = varying(summary, ("constants", "order") if lowest > 0 else ("constants",))
    drawn = ", ".join(names_of(first, axes).values())
    return Drops(points, lowest, drawn, tuple(kept["task"].unique()), left_out)


def _reason(pairs: pandas.DataFrame) -> str | None:
    """Why a task is left out of the means; None where it is not."""
    if (pairs["original"] <= 0).any() or pairs["relative_drop"].isna().any():
        return "a drop in percent needs positive scores"
    beaten = pairs.loc[~pairs["beats_baseline"].astype(bool), "encoder"]
    if beaten.empty:
        return None
    return f"{joined(beaten)} {'do' if len(beaten) > 1 else 'does'} not beat the baseline"


def drops_figure(drops: Drops) -> Chart:
    """``encoders_chart`` as a file, without a heading beside it: the task, and Pearson's r where
    there is one.
    """
    only = () if len(drops.tasks) > 1 else drops.tasks
    title = {"text": ", ".join(filter(None, (*only, _correlation(drops)))), "anchor": "start"}
    sized = {"$schema": SCHEMA, "title": title, "width": 520, "height": 320}
    return Chart("drops", drops.caption, drops.points, {**sized, **_encoders(drops)})


def encoders_chart(drops: Drops) -> Chart:
    """An encoder is a point: its mean relative drop to the right, its mean original upwards."""
    title = " · ".join(filter(None, ("Encoders", _correlation(drops))))
    specification = {**on_page("Encoders", 280), **_encoders(drops)}
    return Chart("encoders", title, drops.points, specification)


def _correlation(drops: Drops) -> str:
    return "" if math.isnan(drops.correlation) else f"r = {drops.correlation:.2f}"


def _encoders(drops: Drops) -> dict[str, Any]:
    several, lost = len(drops.tasks) > 1, drops.points["relative_drop"]
    # Names stand on the side towards the middle.
    points = drops.points.assign(
        side=(lost > (lost.min() + lost.max()) / 2).map({True: "right", False: "left"})
    )
    x = {
        "field": "relative_drop",
        "type": "quantitative",
        "title": f"{'mean ' if several else ''}relative drop {condition(drops.fraction)}",
        "axis": {"format": "~%", "tickCount": 6},
        "scale": {"zero": False, "padding": 40},
    }
    y = {
        "field": "original",
        "type": "quantitative",
        "title": f"mean original score over {len(drops.tasks)} tasks"
        if several
        else "original score",
        "scale": {"zero": False, "padding": 24},
    }
    encoder = {"field": "encoder", "type": "nominal", "sort": None, "legend": None}
    tooltip = [
        told("encoder"),
        told("original", format=".4f"),
        told("relative_drop", "relative drop", ".2%"),
    ]
    name = {"text": {"field": "encoder"}}
    names = [
        layer("text", name, f"datum.side === '{side}'", align=side, dx=offset, style="row-label")
        for side, offset in (("left", 9), ("right", -9))
    ]
    point = {"color": encoder, "shape": encoder, "tooltip": tooltip}
    return {
        "data": {"values": records(points)},
        "encoding": {"x": x, "y": y},
        "layer": [layer("point", point, filled=True, size=90, opacity=1), *names],
    }


def drop_chart(lines: pandas.DataFrame, fractions: str) -> Chart:
    """The relative drop of every encoder on every task, with the interval of differences paired by
    seed and example, at fractions below 1, which the input ``fractions`` chooses.
    """
    headings = fraction_headings(lines)
    verdicts = {True: "beats its baselines", False: "inconclusive"}
    rows = lines[lines["relative_drop"].notna()].assign(
        heads=lambda cells: cells["fraction"].map(headings),
        name=lambda cells: cells["task"] + " · " + cells["encoder"],
        verdict=lambda cells: cells["beats_baseline"].map(verdicts),
    )
    ends = {"relative_drop": "drop", "drop_low": "from", "drop_high": "to"}
    columns = list(ends)
    chosen = {"name": fractions, "value": list(headings.values())[-1]}
    specification = {
        **verdict_rows(
            "Relative drop",
            rows[["name", "heads", "verdict", *columns]],
            {"title": "relative drop", "axis": {"format": "~%", "tickCount": 6}},
            columns,
            dict(zip(verdicts.values(), ("circle", "diamond"), strict=True)),
            "original score",
            [
                told("name", "task · encoder"),
                told("heads", "input-dependent"),
                *told_all(ends, ".2%"),
            ],
        ),
        "params": [{**chosen, "bind": {"element": f"#{fractions}"}}],
        "transform": [{"filter": f"datum.heads === {fractions}"}],
    }
    data = rows[[*LINE, "fraction", *columns, "beats_baseline"]]
    return Chart("relative-drop", "Relative drop", data, specification)
