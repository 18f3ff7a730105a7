"""The study's numbers as tables: mean over seeds, interval, relative drop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import pandas
from rich.table import Table

from papa.reporting.labels import (
    METRICS,
    NOTHING,
    axis_label,
    fixed_caption,
    fraction_label,
    percent_label,
    present,
    score_label,
    varying,
)
from papa.scores.intervals import interval, relative_drop

SUMMARY_COLUMNS = (
    "model",
    "task",
    "constants",
    "order",
    "fraction",
    "constant_heads",
    "metric",
    "seeds",
    "mean",
    "low",
    "high",
    "relative_drop",
)
_COMBINATION = ["model", "task", "constants", "order"]
HEADINGS = {"model": "Model", "task": "Task", "constants": "Constants", "order": "Head order", "study": "Study"}
TEXT_COLUMNS = frozenset({*HEADINGS.values(), "Metric", "Source", "Corpus"})


def with_shared_points(results: pandas.DataFrame) -> pandas.DataFrame:
    """Give every combination of constants and order its points at fractions 1 and 0.

    With every head input-dependent neither constants nor order matter; with every head constant the order
    does not. Results may list such a point once; here each combination that lacks it gets a copy.

    Args:
        results: one row a cell, as in ``results.parquet``.
    """
    combinations = results[_COMBINATION].drop_duplicates()
    copies = []
    for fraction, shared in ((1.0, ["model", "task"]), (0.0, ["model", "task", "constants"])):
        points = results[results["fraction"] == fraction]
        donors = points.drop_duplicates(shared)[_COMBINATION]
        present = set(points[_COMBINATION].itertuples(index=False, name=None))
        for combination in combinations.itertuples(index=False, name=None):
            if combination in present:
                continue
            wanted = dict(zip(_COMBINATION, combination, strict=True))
            for donor in donors.to_dict("records"):
                if all(donor[axis] == wanted[axis] for axis in shared):
                    copies.append(_rows_of(points, donor).assign(**wanted))
    return pandas.concat([results, *copies], ignore_index=True) if copies else results


def _rows_of(points: pandas.DataFrame, combination: dict[str, str]) -> pandas.DataFrame:
    same = [points[axis] == value for axis, value in combination.items()]
    return points[numpy.logical_and.reduce(same)]


def summarise(results: pandas.DataFrame) -> pandas.DataFrame:
    """Mean over seeds, its 95 % Student-t interval and the relative drop of every point of the study.

    Args:
        results: one row a cell; columns ``model, task, constants, order, fraction, constant_heads, seed,
            metric, score``. A point that several combinations share may be listed for each of them or once.

    Returns:
        One row for every model, task, constants, order and fraction with the columns ``SUMMARY_COLUMNS``; the
        study's own order, fractions from 1 down to 0. ``seeds`` counts the seeds; ``low`` and ``high`` are
        NaN for one seed. ``relative_drop`` is (s₁ - s)/|s₁| against fraction 1 of the same model and task
        (paper, Section 4.2), NaN where the study lacks that fraction.
    """
    complete = with_shared_points(results)
    rows = []
    originals = {
        key: group["score"].mean()
        for key, group in complete[complete["fraction"] == 1.0].groupby(_COMBINATION, sort=False)
    }
    for key, group in complete.groupby([*_COMBINATION, "fraction"], sort=False):
        over_seeds = interval(group["score"].tolist())
        original = originals.get(key[:-1])
        rows.append(
            {
                **dict(zip([*_COMBINATION, "fraction"], key, strict=True)),
                "constant_heads": int(group["constant_heads"].iloc[0]),
                "metric": group["metric"].iloc[0],
                "seeds": group["seed"].nunique(),
                "mean": over_seeds.mean,
                "low": over_seeds.low,
                "high": over_seeds.high,
                "relative_drop": float("nan") if original is None else relative_drop(original, over_seeds.mean),
            }
        )
    summary = pandas.DataFrame(rows, columns=list(SUMMARY_COLUMNS))
    places = {axis: {value: place for place, value in enumerate(results[axis].unique())} for axis in _COMBINATION}
    summary = summary.sort_values(
        [*_COMBINATION, "fraction"],
        key=lambda column: column.map(places[column.name]) if column.name in places else -column,
        kind="stable",
    )
    return summary.reset_index(drop=True)


@dataclass(frozen=True)
class WrittenTable:
    """A table with its numbers written out.

    Attributes:
        heading: what it shows.
        headings: one a column.
        rows: cells, as many a row as there are headings.
    """

    heading: str
    headings: list[str]
    rows: list[list[str]]


def score_tables(summary: pandas.DataFrame) -> list[WrittenTable]:
    """The summary, written out.

    One line of a study (one model, task, constants kind and order) is one table with a row a fraction.
    Several lines are two tables, scores and relative drops, with a row a line and a column a fraction. An
    axis with one value has no column (see ``fixed_caption``).
    """
    if not varying(summary):
        return [WrittenTable("Scores", ["Own attention", "Constant heads", "Score", "Drop"], _point_rows(summary))]
    return [
        WrittenTable("Scores", *_line_rows(summary, _score_cell)),
        WrittenTable("Relative drop", *_line_rows(summary, lambda point: percent_label(point["relative_drop"]))),
    ]


def _point_rows(summary: pandas.DataFrame) -> list[list[str]]:
    return [
        [
            fraction_label(point["fraction"]),
            str(point["constant_heads"]),
            _score_cell(point),
            percent_label(point["relative_drop"]),
        ]
        for point in summary.to_dict("records")
    ]


def _line_rows(summary: pandas.DataFrame, cell: Callable[[dict[str, Any]], str]) -> tuple[list[str], list[list[str]]]:
    axes = varying(summary)
    several_metrics = summary["metric"].nunique() > 1
    fractions = sorted(summary["fraction"].unique(), reverse=True)
    headings = [HEADINGS[axis] for axis in axes] + (["Metric"] if several_metrics else [])
    rows = []
    for key, line in summary.groupby(present(summary), sort=False):
        values = dict(zip(present(summary), key, strict=True))
        points = {point["fraction"]: point for point in line.to_dict("records")}
        row = [axis_label(axis, values[axis]) for axis in axes]
        row += [METRICS.get(line["metric"].iloc[0], line["metric"].iloc[0])] if several_metrics else []
        rows.append(row + [cell(points[share]) if share in points else NOTHING for share in fractions])
    return [*headings, *(fraction_label(fraction) for fraction in fractions)], rows


def _score_cell(point: dict[str, Any]) -> str:
    return score_label(point["mean"], point["low"], point["high"])


def summary_table(summary: pandas.DataFrame) -> Table:
    """The summary for the terminal: a row a fraction, or where there are several lines a row a line.

    Five fractions fit into 80 columns.
    """
    lines = bool(varying(summary))
    metrics = [METRICS.get(metric, metric) for metric in summary["metric"].unique()]
    scored = metrics[0] if len(metrics) == 1 else "Score"
    table = Table(
        title=fixed_caption(summary) or None,
        caption=(
            f"{'Columns: share of heads with their own attention. ' if lines else ''}{scored}: mean ± 95 % "
            "interval over seeds. Drop: against every head with its own attention."
        ),
        show_lines=lines,
    )
    scores, *drops = score_tables(summary)
    if not drops:
        for heading in scores.headings:
            table.add_column(heading, justify="right")
        for row in scores.rows:
            table.add_row(*row)
        return table
    # Names share one column and intervals go below their means, so that five fractions fit.
    words = sum(heading in TEXT_COLUMNS for heading in scores.headings)
    table.add_column(", ".join(scores.headings[:words]))
    for heading in [*scores.headings[words:], "Drop"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row, lost in zip(scores.rows, drops[0].rows, strict=True):
        table.add_row(", ".join(row[:words]), *(cell.replace(" ± ", "\n±") for cell in row[words:]), lost[-1])
    return table


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of even width; numbers, which are all but text columns, stand right."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    widths = [max(3, *(len(row[column]) for row in escaped)) for column in range(len(headings))]
    right = [heading not in TEXT_COLUMNS for heading in headings]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(f" {'-' * (w - 1)}: " if r else f" {'-' * w} " for w, r in zip(widths, right, strict=True))
    return "\n".join([line(escaped[0]), f"|{rule}|", *(line(row) for row in escaped[1:])]) + "\n"


def markdown_summary(summary: pandas.DataFrame) -> str:
    """The summary as Markdown tables, each under its heading where there are two."""
    tables = score_tables(summary)
    if len(tables) == 1:
        return markdown_table(tables[0].headings, tables[0].rows)
    return "\n".join(f"**{t.heading}**\n\n{markdown_table(t.headings, t.rows)}" for t in tables)
