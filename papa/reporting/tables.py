"""The study's numbers as tables, for report and terminal: scores, drops, intervals, baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas
from rich.console import Group, RenderableType
from rich.markup import escape

from papa.reporting.verdicts import MARK, WORDS, baseline_table, marks, one_answer_label
from papa.reporting.wording import (
    NOTHING,
    axis_label,
    fixed_caption,
    fraction_headings,
    heads_label,
    lost_label,
    metric_label,
    present,
    score_label,
    shares_note,
    varying,
)
from papa.reporting.written import HEADINGS, WrittenTable


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
        baseline_table(summary),
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


def summary_table(summary: pandas.DataFrame) -> RenderableType:
    """The summary: a row per fraction and per baseline, or where there are several lines a row per
    line.
    """
    contrasts = contrast_table(summary)
    written = [*score_tables(summary), *([contrasts] if contrasts else [])]
    tables = [table.terminal(section=len(summary)) for table in written]
    for table, shown in zip(written[1:], tables[1:], strict=True):
        shown.title = table.heading
    tables[0].title = escape(fixed_caption(summary)) or None
    notes = [caption(summary), shares_note(summary) if varying(summary) else "", *marks(summary)]
    tables[-1].caption = escape(" ".join(filter(None, notes)))
    return Group(*tables)


def caption(summary: pandas.DataFrame) -> str:
    """What the numbers of the summary's tables are, in sentences."""
    metrics = list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))
    scored = metrics[0] if len(metrics) == 1 else "Score"
    columns = "Columns: share of heads that stay input-dependent. " if varying(summary) else ""
    return (
        f"{columns}{scored}: mean ± 95 % interval over seeds and validation examples. Drop: "
        "against every head input-dependent, paired by seed and example."
    )
