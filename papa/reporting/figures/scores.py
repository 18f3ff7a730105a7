"""Score against the share of heads that stay input-dependent (paper, Figures 2, 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from papa.reporting.figures.chart import SCHEMA, Chart, layer, on_page, records, told, told_all
from papa.reporting.summary import LINE, WORDS
from papa.reporting.tables import INCONCLUSIVE, MARK, one_answer_label
from papa.reporting.wording import (
    fixed_caption,
    fraction_headings,
    metric_label,
    names_of,
    present,
    varying,
)

SPACING = "spacing"
"""The page's switch between even and true distances of fractions: a parameter and its input."""
_GAP, _WHOLE_GAP = 0.014, 0.4
"""Between lines at one fraction, as a share of the width, and between the first and last of them,
as a share of a step: or the intervals of close lines would hide each other.
"""
_PANELS_PER_ROW = 3
_LINE_AXES = ("encoder", "constants", "order", "study")
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 3], [1, 3]]
_COLUMNS = [*LINE, "fraction", "mean", "low", "high", "always_one_answer", "word_embeddings"]
_Layer = dict[str, Any]


def scores_figure(summary: pandas.DataFrame) -> Chart:
    """One panel a task, one line for each encoder, constants kind, head order and study.

    A line has 95 % intervals, its task's baselines, and a † where its drops are inconclusive;
    fractions are evenly spaced, from all heads input-dependent (left) to none (right).
    """
    tasks = list(summary["task"].unique())
    lines = _Lines(summary, varying(summary, _LINE_AXES))
    size = {"width": 380 if len(tasks) == 1 else 300, "height": 280}
    panels = [
        {"title": {"text": task, "anchor": "start"}, **size, "layer": lines.panel(task)}
        for task in tasks
    ]
    in_a_row = min(len(tasks), _PANELS_PER_ROW)
    heading = {"text": fixed_caption(summary), "style": "caption", "anchor": "start"}
    if not summary["beats_baseline"].all():
        heading["subtitle"] = f"{MARK} {INCONCLUSIVE}"
    specification = {
        "$schema": SCHEMA,
        "title": heading,
        "params": [{"name": SPACING, "value": "even"}, *lines.params()],
        "concat": panels,
        "columns": in_a_row,
        "spacing": 30,
        "config": {"legend": {"columns": lines.legend_columns(in_a_row * size["width"])}},
    }
    title = (
        "Score against the share of heads that stay input-dependent, with 95 % intervals and "
        "baselines."
    )
    columns = ["study", *_COLUMNS] if "study" in summary else _COLUMNS
    return Chart("scores", title, summary[columns], specification)


def score_charts(
    name: str, summary: pandas.DataFrame, axis: str, encoder: str = ""
) -> tuple[Chart, ...]:
    """The page's panels, one a task and one line for each value of the column ``axis``; with
    several encoders the input ``encoder`` chooses one.
    """
    lines = _Lines(summary, [axis], encoder)
    inputs = [{"name": SPACING, "value": "even", "bind": {"element": f"#{SPACING}"}}]
    if encoder:
        first = str(summary["encoder"].iloc[0])
        inputs.append({"name": encoder, "value": first, "bind": {"element": f"#{encoder}"}})
    return tuple(
        Chart(
            f"{name}-{task}",
            str(task),
            own[_COLUMNS],
            {
                **on_page(str(task), 260),
                "params": [*inputs, *lines.params()],
                "layer": lines.panel(task),
            },
        )
        for task, own in summary.groupby("task", sort=False)
    )


@dataclass(frozen=True)
class _Lines:
    """The lines of all panels, which look the same in each: colour and marker show the first axis,
    dashes the others; the input ``encoder``, if any, chooses among them.
    """

    summary: pandas.DataFrame
    axes: Sequence[str]
    encoder: str = ""

    def params(self) -> list[dict[str, Any]]:
        """Places and names of the fractions."""
        headings = fraction_headings(self.summary)
        true = [float(1 - fraction) for fraction in headings]
        positions = f"{SPACING} === 'true' ? {true} : {list(self._even().values())}"
        labels = [heading.split(" ", maxsplit=1) for heading in headings.values()]
        return [{"name": "labels", "value": labels}, {"name": "ticks", "expr": positions}]

    def _even(self) -> dict[float, float]:
        fractions = sorted(self.summary["fraction"].unique(), reverse=True)
        steps = max(len(fractions) - 1, 1)
        return {fraction: position / steps for position, fraction in enumerate(fractions)}

    def _label(self, rows: pandas.DataFrame, axes: Sequence[str]) -> pandas.Series:
        named = [", ".join(names_of(row, axes).values()) for row in rows.to_dict("records")]
        return pandas.Series(named, rows.index, dtype=object)

    def _scale(self, axes: Sequence[str], **scale: Any) -> dict[str, Any]:
        known = list(self._label(self.summary, axes).unique())
        legend = {"title": None, "orient": "bottom", "labelLimit": 600} if len(known) > 1 else None
        shown = {"sort": None, "title": ", ".join(axes) or None, "legend": legend}
        return {"type": "nominal", "scale": {"domain": known, **scale}, **shown}

    def legend_columns(self, width: int) -> int:
        """How many entries of its legends fit side by side."""
        parts = self.axes[:1], self.axes[1:]
        labels = [label for axes in parts for label in self._label(self.summary, axes)]
        return max(1, min(4, width // (40 + 7 * max(map(len, labels)))))

    def panel(self, task: str) -> list[_Layer]:
        """The layers of one task."""
        rows = self.summary[self.summary["task"] == task]
        chosen = [{"filter": f"datum.encoder === {self.encoder}"}] if self.encoder else []
        title, scale = metric_label(rows.iloc[0]), {"zero": False}
        score = {"type": "quantitative", "title": title, "scale": scale}
        x = {
            "field": "x",
            "type": "quantitative",
            "title": "share of heads that stay input-dependent",
            "scale": {"domain": [-0.06, 1.06], "nice": False, "zero": False},
            "axis": {
                "values": {"expr": "ticks"},
                "labelExpr": "labels[indexof(ticks, datum.value)]",
                "labelOverlap": "greedy",
                "grid": False,
            },
        }
        colour = {"field": "hue", **self._scale(self.axes[:1])}
        dash = {"field": "dash", **self._scale(self.axes[1:], range=_DASHES)}
        if dash["legend"]:
            dash["legend"] = {**dash["legend"], "symbolType": "stroke", "symbolSize": 600}
        ends = told_all({"mean": "score", "low": "from", "high": "to"}, ".4f")
        tooltip = [told("line", "line"), told("heads", "input-dependent"), *ends]
        mean = {"y": {"field": "mean", **score}}
        interval = {"y": {"field": "low", **score}, "y2": {"field": "high"}, "color": colour}
        line = {**mean, "color": colour, "strokeDash": dash}
        point = {**mean, "color": colour, "shape": colour, "tooltip": tooltip}
        dagger = {**mean, "text": {"field": "mark"}}
        bold = {"fontSize": 14, "fontWeight": "bold"}
        points = self._points(rows)
        # Without a point Vega warns of a layer that has no extent.
        marks = [layer("text", dagger, "datum.mark !== ''", dx=11, **bold)]
        rules, names = self._baselines(rows, chosen, score, colour)
        at_fraction = {
            "data": {"values": records(points)},
            "transform": [
                *chosen,
                {"calculate": f"{SPACING} === 'true' ? datum.at_true : datum.at_even", "as": "x"},
            ],
            "encoding": {"x": x},
            "layer": [
                layer("rule", interval, "isValid(datum.low)", strokeWidth=1.5, opacity=0.7),
                layer("line", line, strokeWidth=2),
                *names,
                layer("point", point, filled=True, size=70, opacity=1),
                *(marks if (points["mark"] != "").any() else []),
            ],
        }
        return [*rules, at_fraction]

    def _points(self, rows: pandas.DataFrame) -> pandas.DataFrame:
        line = self._label(rows, self.axes)
        names = list(line.unique())
        step = min(_GAP, _WHOLE_GAP / max(len(self._even()) - 1, 1) / max(len(names) - 1, 1))
        shift = step * (line.map(names.index) - (len(names) - 1) / 2)
        last = ~rows["beats_baseline"].astype(bool) & (rows["fraction"] < 1)
        last &= rows["fraction"] == rows.groupby(present(rows))["fraction"].transform("min")
        drawn = rows.assign(
            line=line,
            hue=self._label(rows, self.axes[:1]),
            dash=self._label(rows, self.axes[1:]),
            heads=rows["fraction"].map(fraction_headings(self.summary)),
            at_even=rows["fraction"].map(self._even()) + shift,
            at_true=1 - rows["fraction"] + shift,
            mark=last.map({True: MARK, False: ""}),
        )
        places = ["line", "hue", "dash", "heads", "at_even", "at_true"]
        return drawn[["encoder", *places, "mean", "low", "high", "mark"]]

    def _baselines(
        self,
        rows: pandas.DataFrame,
        chosen: list[Any],
        score: dict[str, Any],
        colour: dict[str, Any],
    ) -> tuple[list[_Layer], list[_Layer]]:
        """Dashed lines, and their names: what one answer scores at the left, word embeddings at the
        right, which are drawn between lines and points and hide what is around them.

        Where colours tell encoders apart, the lines of their word embeddings have them.
        """
        of_encoder = rows.assign(hue=self._label(rows, self.axes[:1])).drop_duplicates(
            present(rows, ("encoder", "study"))
        )
        coloured = list(self.axes[:1]) == ["encoder"]
        parts = (
            (one_answer_label(rows.iloc[0]), "always_one_answer", "left", 0, False),
            (WORDS, "word_embeddings", "right", "width", coloured),
        )
        rules, names = [], []
        for name, column, side, end, own_colour in parts:
            lines = of_encoder[["encoder", "hue"]].assign(baseline=name, score=of_encoder[column])
            same = ["encoder", "score"] if self.encoder else ["score"]
            lines = lines.dropna(subset="score").drop_duplicates(same)
            top = lines["score"].max()
            if self.encoder:
                top = lines.groupby("encoder")["score"].transform("max")
            lines["name"] = (lines["score"] == top).map({True: name, False: ""})
            tooltip = {"tooltip": [told("baseline"), told("score", format=".4f")]}
            rule = {**tooltip, "color": colour} if own_colour else tooltip
            text = {"text": {"field": "name"}, "x": {"value": end}}
            style: dict[str, Any] = {"dx": 2 if side == "left" else -2, "dy": -5, "align": side}
            shared = {
                "data": {"values": records(lines)},
                "transform": chosen,
                "encoding": {"y": {"field": "score", **score}},
            }
            rules.append({**shared, "layer": [layer("rule", rule, strokeDash=[2, 4])]})
            halo = layer("text", text, fontSize=10.5, **style, style="halo", aria=False)
            names.append({**shared, "layer": [halo, layer("text", text, fontSize=10.5, **style)]})
        return rules, names
