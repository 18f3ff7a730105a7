"""The study's numbers as tables, for report and terminal: scores, drops, intervals, baselines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from papa.reporting.verdicts import MARK, WORDS, baseline_rows, marks, one_answer_label
from papa.reporting.wording import (
    NOTHING,
    axis_label,
    fixed_caption,
    fraction_headings,
    fraction_label,
    heads_label,
    lost_label,
    metric_label,
    present,
    score_label,
    shares_note,
    varying,
)

HEADINGS = {
    "encoder": "Encoder",
    "task": "Task",
    "constants": "Constants",
    "order": "Head order",
    "study": "Study",
}
TEXT_COLUMNS = frozenset(
    {
        *HEADINGS.values(),
        *("Other", "Metric", "Source", "Corpus", "Beats both"),
        *("Measure", "Relation", "Attention", "Pair", "Layer.head"),
    }
)


@dataclass(frozen=True)
class WrittenTable:
    """A table with its numbers written out.

    Attributes:
        heading: what it shows.
        headings: one per column.
        rows: as many texts in each row as there are headings.
    """

    heading: str
    headings: list[str]
    rows: list[list[str]]


def score_tables(summary: pandas.DataFrame) -> list[WrittenTable]:
    """The summary, written out.

    One line of a study (one encoder, task, constants kind and order) is one table with a row per
    fraction, then its baselines. Several lines are three tables, scores, relative drops and
    baselines, the first two with a row per line and a column per fraction. An axis with one value
    has no column (see ``fixed_caption``). What has no baselines, a model's own head, has no rows of
    them.
    """
    if not varying(summary):
        rows = [*_fraction_rows(summary), *_baseline_rows(summary.iloc[0])]
        return [
            WrittenTable("Scores", ["Input-dependent", "Constant heads", "Score", "Drop"], rows)
        ]
    tables = [
        WrittenTable("Scores", *_line_rows(summary, _score)),
        WrittenTable("Relative drop", *_line_rows(summary, _drop)),
        WrittenTable("Baselines", *baseline_rows(summary)),
    ]
    return [table for table in tables if table.rows]


def contrast_table(summary: pandas.DataFrame) -> WrittenTable | None:
    """Scores of the first kind of constants, or study, less the others'; None without others."""
    axis = "study" if "study" in summary else "constants"
    others = summary[summary["contrast"].notna()]
    if others.empty:
        return None
    axes = [name for name in present(summary) if name == axis or name in varying(others)]
    named = others.assign(**{axis: others["contrast_with"] + " − " + others[axis]})
    return WrittenTable("Contrasts", *_line_rows(named, _contrast, axes))


def _fraction_rows(summary: pandas.DataFrame) -> list[list[str]]:
    return [
        [
            heads_label(cell["fraction"], cell["share_of_heads"]),
            str(cell["constant_heads"]),
            _score(cell),
            _drop(cell),
        ]
        for cell in summary.to_dict("records")
    ]


def _baseline_rows(cell: Any) -> list[list[str]]:
    words = score_label(
        cell["word_embeddings"], cell["word_embeddings_low"], cell["word_embeddings_high"]
    )
    scores = {one_answer_label(cell): score_label(cell["always_one_answer"]), WORDS: words}
    return [[name, "", score, ""] for name, score in scores.items() if score != NOTHING]


def _line_rows(
    summary: pandas.DataFrame,
    written: Callable[[dict[str, Any]], str],
    axes: Sequence[str] | None = None,
) -> tuple[list[str], list[list[str]]]:
    axes = varying(summary) if axes is None else axes
    several_metrics = summary["metric"].nunique() > 1
    fractions = fraction_headings(summary)
    headings = [HEADINGS[axis] for axis in axes] + (["Metric"] if several_metrics else [])
    rows = []
    for key, line in summary.groupby(present(summary), sort=False):
        values = dict(zip(present(summary), key, strict=True))
        cells = {cell["fraction"]: cell for cell in line.to_dict("records")}
        row = [axis_label(axis, values[axis]) for axis in axes]
        row += [metric_label(line.iloc[0])] if several_metrics else []
        rows.append(
            row
            + [written(cells[fraction]) if fraction in cells else NOTHING for fraction in fractions]
        )
    return [*headings, *fractions.values()], rows


def _score(cell: dict[str, Any]) -> str:
    return score_label(cell["mean"], cell["low"], cell["high"])


def _drop(cell: dict[str, Any]) -> str:
    return lost_label(cell) + _mark(cell)


def _contrast(cell: dict[str, Any]) -> str:
    return score_label(cell["contrast"], cell["contrast_low"], cell["contrast_high"])


def _mark(cell: dict[str, Any]) -> str:
    return "" if cell["beats_baseline"] else f" {MARK}"


_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)"
    r"|^[#+=-](?=[\s#=-]|$)"  # headings, lists, rules
    r"|:(?=//)|(?<=www)\.|@(?=[\w-]+\.)"  # what GitHub makes a link without being asked
)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, on one line: names come from folders and files."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.split()))


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of even width; all but text columns are right-aligned."""
    escaped = [[markdown_text(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(3, *(len(row[column]) for row in escaped)) for column in range(len(headings))]
    right = [heading not in TEXT_COLUMNS for heading in headings]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(
        f" {'-' * (w - 1)}: " if r else f" {'-' * w} " for w, r in zip(widths, right, strict=True)
    )
    return "\n".join([line(escaped[0]), f"|{rule}|", *(line(row) for row in escaped[1:])]) + "\n"


def summary_table(summary: pandas.DataFrame) -> RenderableType:
    """The summary: a row per fraction and per baseline, or where there are several lines a row per
    line.

    Args:
        summary: as ``papa.reporting.tables.summarise`` returns it.
    """
    tables = score_tables(summary)
    lines = bool(varying(summary))
    parts = [_lines_table(summary, *tables[:2])] if lines else [_one_line(tables[0], len(summary))]
    contrasts = contrast_table(summary)
    parts += [_named_rows(table) for table in (contrasts, *tables[2:]) if table is not None]
    parts[0].title = escape(fixed_caption(summary)) or None
    notes = [caption(summary), shares_note(summary) if lines else "", *marks(summary)]
    parts[-1].caption = escape(" ".join(filter(None, notes)))
    return Group(*parts)


def caption(summary: pandas.DataFrame) -> str:
    """What the numbers of the summary's tables are, in sentences."""
    metrics = list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))
    scored = metrics[0] if len(metrics) == 1 else "Score"
    columns = "Columns: share of heads that stay input-dependent. " if varying(summary) else ""
    last = f" at {fraction_label(summary['fraction'].min())}" if varying(summary) else ""
    return (
        f"{columns}{scored}: mean ± 95 % interval over seeds and validation examples. Drop{last}: "
        "against every head input-dependent, paired by seed and example."
    )


def _one_line(scores: WrittenTable, cells: int) -> Table:
    table = Table()
    for heading in scores.headings:
        table.add_column(heading, justify="right")
    for number, row in enumerate(scores.rows, start=1):
        table.add_row(*map(escape, row), end_section=number == cells)
    return table


def _lines_table(summary: pandas.DataFrame, scores: WrittenTable, drops: WrittenTable) -> Table:
    words, table = _named_table(scores)
    fractions = sorted(summary["fraction"].unique(), reverse=True)
    for heading in [*map(fraction_label, fractions), "Drop"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row, lost in zip(scores.rows, drops.rows, strict=True):
        table.add_row(escape(", ".join(row[:words])), *map(_on_two_lines, (*row[words:], lost[-1])))
    return table


def _named_rows(written: WrittenTable) -> Table:
    words, table = _named_table(written)
    for heading in written.headings[words:]:
        table.add_column(heading, justify="right")
    for row in written.rows:
        table.add_row(escape(", ".join(row[:words])), *map(_on_two_lines, row[words:]))
    return table


def _named_table(written: WrittenTable) -> tuple[int, Table]:
    """A table whose first column holds all names, and how many of the written columns those are."""
    words = next(
        index for index, heading in enumerate(written.headings) if heading not in TEXT_COLUMNS
    )
    table = Table(show_lines=True)
    table.add_column(", ".join(written.headings[:words]), overflow="fold")
    return words, table


def _on_two_lines(cell: str) -> str:
    """Intervals and answers go below their numbers."""
    return escape(cell.replace(" ± ", "\n±").replace(" (", "\n("))
