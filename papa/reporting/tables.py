"""A study's results as tables, for the report and the terminal: scores, drops, baselines and
contrasts.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas
from jaxtyping import Int
from rich.console import Group

from papa.reporting.sentences import score_sentences
from papa.reporting.wording import (
    DAGGER,
    HEADINGS,
    NOTHING,
    Row,
    WrittenTable,
    axis_labels,
    dagger_note,
    drop_label,
    fixed_caption,
    fraction_headings,
    fraction_label,
    interval_label,
    markdown_text,
    mean_label,
    metric_label,
    metric_labels,
    score_label,
    varying_axes,
    with_dagger,
)
from papa.scores.summary import (
    distinct_fractions,
    distinct_results,
    first_occurrence,
    gives_one_answer,
    inconclusive_clause,
    inconclusive_rows,
    is_below_baseline,
)
from papa.spec.columns import PAIR
from papa.spec.orders import Cell
from papa.spec.task import LOSS

_SCORES = (
    "Mean over seeds ± 95 % interval over seeds and validation examples. Columns: share of heads "
    "that stay input-dependent."
)
_DROPS = "Against every head input-dependent, ± 95 % interval, paired by seed and example."
_NATS = "Of a loss: the difference in nats, and the ratio of perplexities (PPL)."
_BASELINES = (
    "One answer: the best score of a single answer for every validation example. Word embeddings: "
    "the same probe on word embeddings alone (a native head has no such baseline). An original "
    "beats them if the intervals of its differences from them, paired by seed and example, are "
    "above 0."
)
_CONTRASTS = (
    "Score, first minus second, with as many heads constant: mean ± 95 % "
    "interval, paired by seed and example."
)


def score_tables(summary: pandas.DataFrame) -> list[WrittenTable]:
    """Return the tables of a summary that have rows: scores, drops and contrasts with a row a line
    (encoder, task, constants, head order, study) and a column a fraction, baselines, and scores by
    task. An axis with one value has no column (see ``fixed_caption``), except for constants; a
    single metric is in the headings.
    """
    rounded_note = _rounded_note(summary)
    summary = distinct_fractions(summary)
    axis = "study" if "study" in summary else "constants"
    contrasts = summary[summary["contrast"].notna()].copy()
    # The rows of their table are named after both sides.
    contrasts[axis] = contrasts["contrast_with"] + " − " + contrasts[axis]
    contrast_axes = [name for name in HEADINGS if name in (axis, *row_axes(contrasts))]
    has_losses = bool((summary["metric"] == LOSS).any())
    drop_note = " ".join(
        [_DROPS, *([_NATS] if has_losses else []), *inconclusive_sentences(summary)]
    )
    score_note = ". ".join(filter(None, [fixed_caption(summary), _SCORES]))
    axes = row_axes(summary)
    score_note += rounded_note + dagger_note(summary)
    drop_heading = "Drop" if has_losses else "Relative drop"
    contrast_label = partial(interval_label, "contrast")
    tables = [
        _table_of_lines("Scores", summary, mean_label, axes, score_note),
        _table_of_lines(drop_heading, summary, drop_label, axes, drop_note),
        _baselines(summary),
        _table_of_lines("Contrasts", contrasts, contrast_label, contrast_axes, _CONTRASTS),
    ]
    metrics = metric_labels(summary)
    if len(metrics) == 1:
        tables = [replace(table, heading=f"{table.heading} ({metrics[0]})") for table in tables]
    if summary["task"].nunique() > 1:
        tables.append(by_task(summary))
    return [table for table in tables if table.records]


def summary_table(summary: pandas.DataFrame) -> Group:
    """Return the tables of a summary for a terminal."""
    return Group(*(table.terminal() for table in score_tables(summary)))


def summary_markdown(summary: pandas.DataFrame) -> str:
    """Return the results of a study in sentences and tables, as Markdown."""
    sentences = [*score_sentences(summary), *inconclusive_sentences(summary)]
    bullets = "".join(f"- {markdown_text(sentence)}\n" for sentence in sentences)
    tables = [f"## {table.titled_markdown}" for table in score_tables(summary)]
    return "\n".join([bullets, *tables])


def by_task(summary: pandas.DataFrame) -> WrittenTable:
    """Return the table in the paper's shape, with a column a task: each encoder's original score
    once, then the average, then other constants with their contrast with the average (or else with
    the study's first kind).
    """
    summary = distinct_fractions(summary)
    cells = distinct_results(summary)
    axes = [axis for axis in row_axes(cells) if axis != "task"]
    headings = fraction_headings(summary)
    tasks = cells.sort_values("task", key=first_occurrence, kind="stable")
    task_columns = [_task_heading(cell) for cell in tasks.to_dict("records")]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells.iloc[_paper_order(cells)].to_dict("records"):
        labels = axis_labels({**cell, **shared_labels(cell)}, axes)
        labels["Input-dependent"] = headings[cell["fraction"]]
        empty_row = labels | dict.fromkeys(task_columns, NOTHING)
        row = rows.setdefault(tuple(labels.values()), empty_row)
        score = mean_label(cell)
        if not math.isnan(cell["contrast"]):
            score += f"; Δ {interval_label('contrast', cell)}"
        row[_task_heading(cell)] = with_dagger(score, cell)
    reference = summary["contrast_with"].max()
    notes = ["Mean scores ± 95 % intervals."]
    if reference:
        notes.append(f"Δ: how much more {reference} scores, paired by seed and example.")
    return WrittenTable("By task", [*rows.values()], " ".join(notes) + dagger_note(summary))


def _paper_order(cells: pandas.DataFrame) -> Int[np.ndarray, " rows"]:
    """Return the indices of the rows in the paper's order: by study and encoder; the original
    first, then the average, then other substitutes; within each, all heads constant last.
    """
    # 0 of originals, 1 of averages, 2 of other constants.
    group = (cells["fraction"] < 1) * (1 + (cells["constants"] != "average"))
    outer_axes = [axis for axis in ("study", "encoder") if axis in cells]
    # np.lexsort sorts by its last key first.
    return np.lexsort(
        [
            cells["fraction"] == 0,
            first_occurrence(cells["constants"]),
            group,
            *(first_occurrence(cells[axis]) for axis in outer_axes),
        ]
    )


def shared_labels(cell: Row) -> dict[str, str]:
    """Return the constants and the order of a cell's result, a dash where it depends on neither."""
    canonical = Cell.from_row(cell).canonical()
    return {"constants": canonical.constants or NOTHING, "order": canonical.order or NOTHING}


def _rounded_note(summary: pandas.DataFrame) -> str:
    """Return which fractions the tables leave out, if any."""
    left_out = {*summary["fraction"]} - {*distinct_fractions(summary)["fraction"]}
    labels = ", ".join(map(fraction_label, sorted(left_out, reverse=True)))
    return f" Left out, as it rounds to as many heads as another share: {labels}." if labels else ""


def row_axes(summary: pandas.DataFrame) -> list[str]:
    """Return the axes that name a row: those with more than one value, and always constants."""
    varying = varying_axes(summary)
    return [axis for axis in HEADINGS if axis == "constants" or axis in varying]


def _task_heading(cell: Row) -> str:
    return f"{cell['task']} ({metric_label(cell)})"


def _table_of_lines(
    heading: str,
    summary: pandas.DataFrame,
    cell_label: Callable[[Row], str],
    axes: list[str],
    note: str,
) -> WrittenTable:
    """Return a table with a row for each line of the summary, a column for each fraction, and the
    label of each cell, with a dagger where its drop is inconclusive.
    """
    rows = []
    columns = fraction_headings(summary)
    for _, line in summary.groupby([axis for axis in HEADINGS if axis in summary], sort=False):
        texts = {
            cell["fraction"]: with_dagger(cell_label(cell), cell)
            for cell in line.to_dict("records")
        }
        columns_of_row = {
            label: texts.get(fraction, NOTHING) for fraction, label in columns.items()
        }
        rows.append({**_row_labels(line.iloc[0], axes, summary), **columns_of_row})
    return WrittenTable(heading, rows, note)


def _row_labels(cell: Row, axes: list[str], summary: pandas.DataFrame) -> dict[str, str]:
    """Return what names a row: its axes, and its metric if the summary has two or more."""
    labels = axis_labels(cell, axes)
    if len(metric_labels(summary)) > 1:
        labels["Metric"] = metric_label(cell)
    return labels


def _baselines(summary: pandas.DataFrame) -> WrittenTable:
    """Return a table of each original score, its baselines, and whether it beats both."""
    groups = [axis for axis in (*PAIR, "study") if axis in summary]
    rows = []
    for _, cells in summary.groupby(groups, sort=False):
        cell = cells.iloc[0]
        if cells[["always_one_answer", "word_embeddings"]].isna().all(axis=None):
            continue
        original = cells[cells["fraction"] == 1]
        answer = f" ('{cell['one_answer']}')" if cell["one_answer"] else ""
        if not pandas.isna(cell["beats_baseline"]) and cell["beats_baseline"]:
            beaten = "yes"
        elif is_below_baseline(cell) or gives_one_answer(cell):
            beaten = "no"
        else:
            beaten = "unknown"
        rows.append(
            {
                **_row_labels(cell, varying_axes(summary, groups) or ["encoder"], summary),
                "Original": NOTHING if original.empty else mean_label(original.iloc[0]),
                "One answer": score_label(cell["always_one_answer"]) + answer,
                "Word embeddings": interval_label("word_embeddings", cell),
                "Beaten": beaten,
            }
        )
    return WrittenTable("Baselines", rows, _BASELINES)


def inconclusive_sentences(summary: pandas.DataFrame) -> list[str]:
    """Return a sentence for every encoder and task with a dagger."""
    groups = [axis for axis in ("study", *PAIR) if axis in summary]
    cells = inconclusive_rows(summary).drop_duplicates(groups)
    return [
        f"{DAGGER} {', '.join(str(cell[axis]) for axis in groups)}: {inconclusive_clause(cell)}, "
        "so its drops are inconclusive."
        for cell in cells.to_dict("records")
    ]
