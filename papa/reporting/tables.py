"""The study's numbers as tables, for report and terminal: scores, drops, contrasts, baselines; and
which drops are marked, as the original does not beat its baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas
from rich.console import Group, RenderableType
from rich.markup import escape

from papa.reporting.answers import answers, one_answer_label
from papa.reporting.wording import (
    MARK,
    NOTHING,
    fixed_caption,
    fraction_headings,
    heads_label,
    lost_label,
    mean_label,
    metric_label,
    names_of,
    present,
    score_label,
    shares_note,
    varying,
    words_label,
)
from papa.reporting.written import WrittenTable, markdown_text
from papa.scores.summary import WORDS, reason_sentence

_COLUMNS = "Columns: share of heads that stay input-dependent. "
_SCORES = "Mean over seeds ± 95 % interval over seeds and validation examples."
_DROPS = "Drop: against every head input-dependent, ± 95 % interval, paired by seed and example."
_BASELINES = (
    "Always one answer: the best that a single answer for every validation example scores. Word "
    "embeddings alone: the same probe without positions and layers. An original beats both if the "
    "intervals of its differences from them, paired by seed and example, are above 0."
)
_CONTRASTS = {
    "constants": (
        "The score with the first kind of constants less that with another, with as many heads "
        "constant: mean ± 95 % interval, paired by seed and example."
    ),
    "study": "The first study's score less another's: mean ± 95 % interval.",
}


def score_tables(summary: pandas.DataFrame) -> list[WrittenTable]:
    """The summary, written out, with notes on what its numbers are.

    One line of a study (one encoder, task, constants kind and order) is one table with a row per
    fraction, then its baselines. Several lines are three tables, scores, relative drops and
    baselines, the first two with a row per line and a column per fraction. An axis with one value
    has no column (see ``fixed_caption``). What has no baselines, a model's own head, has no rows of
    them.
    """
    fixed, axes = fixed_caption(summary), varying(summary)
    drops = " ".join([_DROPS, *marks(summary)])
    if axes:
        differing = summary.groupby("fraction")["share_of_heads"].nunique() > 1
        shares = shares_note(summary) if differing.any() else ""
        note = _sentences(fixed and f"{fixed}.", _COLUMNS + _SCORES, shares)
        tables = [
            _line_table("Scores", summary, mean_label, axes, note),
            _line_table("Relative drop", summary, _drop, axes, drops),
            _baseline_table(summary),
        ]
        return [table for table in tables if table.rows]
    cells = summary.to_dict("records")
    headings = ["Input-dependent", "Constant heads", "Score", "Drop"]
    heads = [heads_label(cell["fraction"], cell["share_of_heads"]) for cell in cells]
    rows = [
        [share, str(cell["constant_heads"]), mean_label(cell), _drop(cell)]
        for share, cell in zip(heads, cells, strict=True)
    ]
    one_answer = score_label(cells[0]["always_one_answer"])
    baselines = {one_answer_label(cells[0]): one_answer, WORDS: words_label(cells[0])}
    rows += [[name, "", score, ""] for name, score in baselines.items() if score != NOTHING]
    return [WrittenTable("Scores", headings, rows, f"{fixed}. {_SCORES} {drops}")]


def _sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def summary_markdown(summary: pandas.DataFrame) -> str:
    """What a study found, in sentences and tables, as Markdown."""
    sentences = "".join(f"- {markdown_text(one)}\n" for one in [*answers(summary), *marks(summary)])
    tables = [f"## {table.heading}\n\n{table.markdown}" for table in score_tables(summary)]
    return "\n".join([sentences, *tables])


def contrast_table(summary: pandas.DataFrame) -> WrittenTable | None:
    """Scores of the first kind of constants, or study, less the others'; None without others."""
    axis = "study" if "study" in summary else "constants"
    others = summary[summary["contrast"].notna()]
    if others.empty:
        return None
    axes = [name for name in present(summary) if name == axis or name in varying(others)]
    named = others.assign(**{axis: others["contrast_with"] + " − " + others[axis]})
    return _line_table("Contrasts", named, _contrast, axes, _CONTRASTS[axis])


def _line_table(
    heading: str,
    summary: pandas.DataFrame,
    written: Callable[[dict[str, Any]], str],
    axes: Sequence[str],
    note: str,
) -> WrittenTable:
    """A row for each line of the summary, a column for each fraction."""
    rows = []
    for _, line in summary.groupby(present(summary), sort=False):
        cells = {cell["fraction"]: written(cell) for cell in line.to_dict("records")}
        scores = {
            label: cells.get(fraction, NOTHING)
            for fraction, label in fraction_headings(summary).items()
        }
        rows.append({**_named(line.iloc[0], axes, summary), **scores})
    return WrittenTable.of(heading, rows, note)


def _named(cell: Any, axes: Sequence[str], summary: pandas.DataFrame) -> dict[str, str]:
    """What tells a row from others: its names, and its metric where there are several."""
    several = summary["metric"].nunique() > 1
    return names_of(cell, axes) | ({"Metric": metric_label(cell)} if several else {})


def _baseline_table(summary: pandas.DataFrame) -> WrittenTable:
    """Each original score, its baselines, and whether it beats both; no row where there are
    none.
    """
    groups = present(summary, ("encoder", "task", "study"))
    axes = varying(summary, groups) or groups[:1]
    rows = []
    for _, cells in summary.groupby(groups, sort=False):
        cell = cells.iloc[0]
        if cells[["always_one_answer", "word_embeddings"]].isna().all(axis=None):
            continue
        full = cells[cells["fraction"] == 1]
        answer = f" ('{cell['one_answer']}')" if cell["one_answer"] else ""
        rows.append(
            {
                **_named(cell, axes, summary),
                "Original": NOTHING if full.empty else mean_label(full.iloc[0]),
                "Always one answer": score_label(cell["always_one_answer"]) + answer,
                "Word embeddings alone": words_label(cell),
                "Beats both": verdict(cell),
            }
        )
    return WrittenTable.of("Baselines", rows, _BASELINES)


def _drop(cell: dict[str, Any]) -> str:
    return lost_label(cell) + ("" if cell["beats_baseline"] else f" {MARK}")


def _contrast(cell: dict[str, Any]) -> str:
    return score_label(cell["contrast"], cell["contrast_low"], cell["contrast_high"])


def verdict(cell: Any) -> str:
    """``yes``, ``no``, or why it is unknown; nothing where there are no baselines."""
    if cell["beats_baseline"]:
        return NOTHING if pandas.isna(cell["word_embeddings"]) else "yes"
    return "no" if cell["reason"].startswith("does not beat") else f"unknown: {cell['reason']}"


def marks(summary: pandas.DataFrame) -> list[str]:
    """A sentence for every encoder and task that is marked."""
    groups = present(summary, ("study", "encoder", "task"))
    cells = summary[~summary["beats_baseline"].astype(bool)].drop_duplicates(groups)
    return [
        f"{MARK} {', '.join(str(cell[axis]) for axis in groups)}: {reason_sentence(cell)}, "
        "so its drops are inconclusive."
        for cell in cells.to_dict("records")
    ]


def summary_table(summary: pandas.DataFrame) -> RenderableType:
    """The summary and its contrasts, for a terminal."""
    contrasts = contrast_table(summary)
    written = [*score_tables(summary), *([contrasts] if contrasts else [])]
    tables = [table.terminal(section=len(summary)) for table in written]
    for table, shown in zip(written[1:], tables[1:], strict=True):
        shown.title = table.heading
    tables[0].title = escape(fixed_caption(summary)) or None
    notes = [caption(summary), shares_note(summary) if varying(summary) else "", *marks(summary)]
    tables[-1].caption = escape(_sentences(*notes))
    return Group(*tables)


def caption(summary: pandas.DataFrame) -> str:
    """What the numbers of the summary's tables are, in sentences."""
    metrics = list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))
    scored = metrics[0] if len(metrics) == 1 else "Score"
    columns = _COLUMNS if varying(summary) else ""
    return (
        f"{columns}{scored}: mean ± 95 % interval over seeds and validation examples. Drop: "
        "against every head input-dependent, paired by seed and example."
    )
