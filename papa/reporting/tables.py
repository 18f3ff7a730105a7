"""The study's numbers as tables, for report and terminal: scores, drops, baselines, contrasts; and
which drops are marked, as the original does not beat its baselines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas
from rich.console import Group

from papa.reporting.answers import answers
from papa.reporting.wording import (
    HEADINGS,
    MARK,
    NOTHING,
    ends_label,
    fixed_caption,
    fraction_headings,
    lost_label,
    mean_label,
    metric_label,
    names_of,
    order_label,
    score_label,
    varying,
)
from papa.reporting.written import WrittenTable, markdown_text
from papa.scores.orders import BETTER, GROUP, NOT_TOLD, WORSE
from papa.scores.summary import reason_sentence

_SCORES = (
    "mean over seeds ± 95 % interval over seeds and validation examples. Columns: share of heads "
    "that stay input-dependent."
)
_DROPS = "Against every head input-dependent, ± 95 % interval, paired by seed and example."
_BASELINES = (
    "The best that a single answer for every validation example scores, and the same probe on word "
    "embeddings alone. An original beats both if the intervals of its differences from them, "
    "paired by seed and example, are above 0."
)
_CONTRASTS = (
    "The score of the first less that of another, with as many heads constant: mean ± 95 % "
    "interval, paired by seed and example."
)
_ORDERS = (
    "*, better, worse: beyond chance. Seconds and evaluations (passes over the examples; of λ its "
    "epochs) are the ranking's over its seeds; –: no more than another order's row counts."
)


def score_tables(summary: pandas.DataFrame) -> list[WrittenTable]:
    """The summary, written out: scores, relative drops and contrasts of a row a line (encoder,
    task, constants, head order, study) and a column a fraction, and baselines; those that have
    rows. An axis with one value has no column (see ``fixed_caption``).
    """
    metrics = list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))
    scored = metrics[0] if len(metrics) == 1 else "Score"
    axis = "study" if "study" in summary else "constants"
    others = summary[summary["contrast"].notna()]
    against = others.assign(**{axis: others["contrast_with"] + " − " + others[axis]})
    axes = [name for name in HEADINGS if name == axis or name in varying(others)]
    drops = " ".join([_DROPS, *marks(summary)])
    note = ". ".join(filter(None, [fixed_caption(summary), f"{scored}: {_SCORES}"]))

    def lost(cell: Any) -> str:
        return lost_label(cell) + ("" if cell["beats_baseline"] else f" {MARK}")

    tables = [
        _lines("Scores", summary, mean_label, varying(summary), note),
        _lines("Relative drop", summary, lost, varying(summary), drops),
        _baselines(summary),
        _lines("Contrasts", against, partial(ends_label, "contrast"), axes, _CONTRASTS),
    ]
    return [table for table in tables if table.rows]


def summary_table(summary: pandas.DataFrame) -> Group:
    """The summary, for a terminal."""
    return Group(*(table.terminal() for table in score_tables(summary)))


def summary_markdown(summary: pandas.DataFrame) -> str:
    """What a study found, in sentences and tables, as Markdown."""
    sentences = "".join(f"- {markdown_text(one)}\n" for one in [*answers(summary), *marks(summary)])
    tables = [f"## {table.heading}\n\n{table.markdown}" for table in score_tables(summary)]
    return "\n".join([sentences, *tables])


def _lines(
    heading: str,
    summary: pandas.DataFrame,
    written: Callable[[dict[str, Any]], str],
    axes: list[str],
    note: str,
) -> WrittenTable:
    """A row for each line of the summary, a column for each fraction."""
    rows, columns = [], fraction_headings(summary)
    for _, line in summary.groupby([axis for axis in HEADINGS if axis in summary], sort=False):
        cells = {cell["fraction"]: written(cell) for cell in line.to_dict("records")}
        scores = {label: cells.get(fraction, NOTHING) for fraction, label in columns.items()}
        rows.append({**_named(line.iloc[0], axes, summary), **scores})
    return WrittenTable.of(heading, rows, note)


def _named(cell: Any, axes: list[str], summary: pandas.DataFrame) -> dict[str, str]:
    """What tells a row from others: its names, and its metric where there are several."""
    several = summary["metric"].nunique() > 1
    names = names_of(cell, axes or ["encoder"])
    return names | ({"Metric": metric_label(cell)} if several else {})


def _baselines(summary: pandas.DataFrame) -> WrittenTable:
    """Each original score, its baselines, and whether it beats both; no row where there are
    none.
    """
    groups = [axis for axis in ("encoder", "task", "study") if axis in summary]
    rows = []
    for _, cells in summary.groupby(groups, sort=False):
        cell = cells.iloc[0]
        if cells[["always_one_answer", "word_embeddings"]].isna().all(axis=None):
            continue
        full = cells[cells["fraction"] == 1]
        answer = f" ('{cell['one_answer']}')" if cell["one_answer"] else ""
        unbeaten = "no" if cell["reason"].startswith("does not beat") else "unknown"
        rows.append(
            {
                **_named(cell, varying(summary, groups), summary),
                "Original": NOTHING if full.empty else mean_label(full.iloc[0]),
                "One answer": score_label(cell["always_one_answer"]) + answer,
                "Word embeddings": ends_label("word_embeddings", cell),
                "Beats both": "yes" if cell["beats_baseline"] else unbeaten,
            }
        )
    return WrittenTable.of("Baselines", rows, _BASELINES)


def order_table(scores: pandas.DataFrame, each_way: pandas.DataFrame) -> WrittenTable:
    """A row for every order of each encoder, task and kind of constants, the best first, beside the
    study's first.
    """
    first = each_way["order"].iloc[0]
    beside = dict(list(each_way.groupby([*GROUP, "order"], sort=False)))
    rows = []
    for group, own in scores.groupby(GROUP, sort=False):
        for row in own.sort_values("mean", ascending=False, kind="stable").to_dict("records"):
            others = beside[*group, row["order"]]
            verdicts, less, alike = list(others["verdict"]), NOTHING, NOTHING
            for other in others[others["other"] == first].to_dict("records"):
                told = "" if other["verdict"] == NOT_TOLD else " *"
                less = score_label(other["difference"], other["low"], other["high"]) + told
                alike = _number(other["kendall_tau"], "z.2f")
            rows.append(
                {
                    **names_of(row, [*varying(scores, GROUP), "order"]),
                    "Mean score": score_label(row["mean"], row["low"], row["high"]),
                    f"Less {order_label(first)}": less,
                    "Kendall's τ with it": alike,
                    "Better than": str(verdicts.count(BETTER)),
                    "Worse than": str(verdicts.count(WORSE)),
                    "Seconds": _number(row["seconds"], ",.1f"),
                    "Evaluations": _number(row["evaluations"], ",.0f"),
                }
            )
    return WrittenTable.of("Head orders", rows, _ORDERS)


def _number(value: float | None, form: str) -> str:
    return NOTHING if pandas.isna(value) else format(value, form)


def marks(summary: pandas.DataFrame) -> list[str]:
    """A sentence for every encoder and task that is marked."""
    groups = [axis for axis in ("study", "encoder", "task") if axis in summary]
    cells = summary[~summary["beats_baseline"].astype(bool)].drop_duplicates(groups)
    return [
        f"{MARK} {', '.join(str(cell[axis]) for axis in groups)}: {reason_sentence(cell)}, "
        "so its drops are inconclusive."
        for cell in cells.to_dict("records")
    ]
