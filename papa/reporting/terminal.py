"""The summary of a study for the terminal: names share a column and intervals go below, so five fractions fit."""

from __future__ import annotations

import pandas
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from papa.reporting.baselines import marks
from papa.reporting.labels import fixed_caption, fraction_label, metric_label, shares_note, varying
from papa.reporting.tables import TEXT_COLUMNS, WrittenTable, score_tables

_BASELINES = 2
"""Rows at the end of the table of one line."""


def summary_table(summary: pandas.DataFrame) -> RenderableType:
    """The summary: a row a fraction and a row a baseline, or where there are several lines a row a line.

    Args:
        summary: as ``papa.reporting.tables.summarise`` returns it.
    """
    tables = score_tables(summary)
    lines = bool(varying(summary))
    shown = [_lines_table(summary, *tables[:2]), _baselines_table(tables[2])] if lines else [_points(tables[0])]
    shown[0].title = escape(fixed_caption(summary)) or None
    notes = [_explained(summary), shares_note(summary) if lines else "", *marks(summary)]
    shown[-1].caption = escape(" ".join(filter(None, notes)))
    return Group(*shown)


def _explained(summary: pandas.DataFrame) -> str:
    metrics = list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))
    scored = metrics[0] if len(metrics) == 1 else "Score"
    columns = "Columns: share of heads with their own attention. " if varying(summary) else ""
    last = f" at {fraction_label(summary['fraction'].min())}" if varying(summary) else ""
    return (
        f"{columns}{scored}: mean ± 95 % interval over seeds. Drop{last}: against every head with its own attention, "
        "± the interval of differences paired by seed."
    )


def _points(scores: WrittenTable) -> Table:
    table = Table()
    for heading in scores.headings:
        table.add_column(heading, justify="right")
    for number, row in enumerate(scores.rows, start=1):
        table.add_row(*map(escape, row), end_section=number == len(scores.rows) - _BASELINES)
    return table


def _lines_table(summary: pandas.DataFrame, scores: WrittenTable, drops: WrittenTable) -> Table:
    words, table = _named_table(scores)
    fractions = sorted(summary["fraction"].unique(), reverse=True)
    for heading in [*map(fraction_label, fractions), "Drop"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row, lost in zip(scores.rows, drops.rows, strict=True):
        table.add_row(escape(", ".join(row[:words])), *map(_below, (*row[words:], lost[-1])))
    return table


def _baselines_table(written: WrittenTable) -> Table:
    words, table = _named_table(written)
    for heading in written.headings[words:]:
        table.add_column(heading, justify="right")
    for row in written.rows:
        table.add_row(escape(", ".join(row[:words])), *map(_below, row[words:]))
    return table


def _named_table(written: WrittenTable) -> tuple[int, Table]:
    """A table whose first column holds all names, and how many of the written columns those are."""
    words = next(place for place, heading in enumerate(written.headings) if heading not in TEXT_COLUMNS)
    table = Table(show_lines=True)
    table.add_column(", ".join(written.headings[:words]), overflow="fold")
    return words, table


def _below(cell: str) -> str:
    """Intervals and answers go below their numbers."""
    return escape(cell.replace(" ± ", "\n±").replace(" ('", "\n('"))
