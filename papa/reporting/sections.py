"""The sections of the report's page: figures under a heading, with tables below; some studies have
more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas

from papa.reporting.amounts import amount_charts, amounts_table
from papa.reporting.cache import CachedCell, cache_table
from papa.reporting.figures.chart import Chart
from papa.reporting.figures.drops import drop_chart, drops_over_tasks, encoders_chart
from papa.reporting.figures.heads import head_maps
from papa.reporting.figures.scores import SPACING, score_charts
from papa.reporting.heads import COUNTED, HeadsOfEncoder
from papa.reporting.orders import OrdersCompared, order_charts, order_table, orders_note, pair_table
from papa.reporting.summary import main_lines
from papa.reporting.tables import INCONCLUSIVE, MARK
from papa.reporting.wording import (
    WrittenTable,
    axis_label,
    fraction_headings,
    order_label,
    orders_matter,
)
from papa.spec import StudySpec


@dataclass(frozen=True)
class Choice:
    """An input of the page that figures listen to."""

    name: str
    label: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """Figures under one heading, which listen to its choice, if any, and tables below them, closed,
    with their notes.
    """

    heading: str
    note: str
    charts: tuple[Chart, ...]
    choice: Choice | None = None
    tables: Sequence[WrittenTable] = ()

    @property
    def identifier(self) -> str:
        """Of its heading, for links."""
        return self.heading.lower().replace(" ", "-")


def score_sections(study: StudySpec, summary: pandas.DataFrame) -> list[Section]:
    """Scores by the first constants and order, and by all constants, or orders, beside each
    other.
    """
    spacing = Choice(
        SPACING, "Fractions", {"even": "evenly spaced", "true": "at their true distances"}
    )
    first = summary.iloc[0]
    drawn = f"Constants: {first['constants']}. "
    if orders_matter(study.fractions):
        drawn += f"Heads become constant in the order: {order_label(first['order'])}. "
    several = summary["encoder"].nunique() > 1
    own = ", word embeddings alone in each encoder's colour" if several else ""
    note = f"{drawn}Bars: 95 % intervals over seeds and examples."
    if summary["always_one_answer"].notna().any():
        note += f" Dashed: the baselines{own}."
    note += "" if summary["beats_baseline"].all() else f" {MARK} {INCONCLUSIVE}"
    charts = score_charts("score", main_lines(summary), "encoder")
    sections = [Section("Score", note, charts, spacing)]
    for axis, heading, fixed, what in (
        ("constants", "Constants compared", "order", "Head order"),
        ("order", "Head orders compared", "constants", "Constants"),
    ):
        lines = summary[summary[fixed] == first[fixed]]
        if lines[axis].nunique() < 2 or (axis == "order" and not orders_matter(study.fractions)):
            continue
        name = f"encoder_of_{axis}"
        encoders = {encoder: encoder for encoder in summary["encoder"].unique()}
        choice = Choice(name, "Encoder", encoders) if several else None
        note = f"{what}: {axis_label(fixed, first[fixed])}. Every other choice is in the tables."
        charts = score_charts(axis, lines, axis, name if several else "")
        sections.append(Section(heading, note, charts, choice))
    return sections


def drop_sections(summary: pandas.DataFrame) -> list[Section]:
    """Relative drops, and the encoders of a study of several."""
    lines = main_lines(summary)
    lost = lines[lines["fraction"] < 1]
    sections = []
    if lost["relative_drop"].notna().any():
        note = (
            "Against every head input-dependent: (original − score) / |original|, with the 95 % "
            "interval of differences paired by seed and example."
        )
        options = {text: text for text in reversed(fraction_headings(lost).values())}
        choice = Choice("drop_fraction", "Input-dependent", options)
        sections.append(Section("Relative drop", note, (drop_chart(lost, choice.name),), choice))
    drops = drops_over_tasks(summary)
    if len(drops.points) > 1:
        sections.append(Section("Encoders compared", drops.caption, (encoders_chart(drops),)))
    return sections


def head_sections(heads: Sequence[HeadsOfEncoder]) -> list[Section]:
    """The maps of all scores of heads."""
    charts = tuple(chart for group in heads for chart in head_maps(group))
    note = f"{COUNTED} The smallest become constant first."
    if any(group.lambdas for group in heads):
        note += (
            " λ says nothing at .5, where its training starts. A head has a dot where the 95 % "
            "interval of its λ over seeds leaves .5 out, and the colour of the interval's end that "
            "is nearer to .5. The 95 % are of each head alone: where no λ differs from .5, one "
            "head in twenty has a dot by chance. λ of one seed has no interval, and its colour is "
            "λ."
        )
    return [Section("Heads at a glance", note, charts)] if charts else []


def orders_section(orders: OrdersCompared) -> Section:
    """Head orders beside each other."""
    note = f"{orders_note(orders)} Drawn: {orders.pairs['constants'].iloc[0]}."
    tables = order_table(orders), pair_table(orders)
    return Section("Head orders told apart", note, order_charts(orders), tables=tables)


def amounts_section(averages: pandas.DataFrame) -> Section:
    """Averages over some of the text."""
    note = "The score by averages over little text; below points the share of entries never seen."
    heading, charts = "How much text an average needs", amount_charts(averages)
    return Section(heading, note, charts, tables=(amounts_table(averages),))


def cache_section(cells: Sequence[CachedCell]) -> Section:
    """Which groups of a decoder's heads need no cache."""
    return Section("Cache", "What constant heads save.", (), tables=(cache_table(cells),))
