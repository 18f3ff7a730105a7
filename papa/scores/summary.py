"""The summary of a study, or of several: every cell's score and drop, and the baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pandas

from papa.scores.columns import SUMMARY_COLUMNS
from papa.scores.intervals import (
    NOT_KNOWN,
    Interval,
    Measured,
    clipped,
    difference,
    joint,
    paired_drop,
    unit_of,
)
from papa.spec.cells import Cell
from papa.spec.task import UNLABELLED_METRICS

ONE_ANSWER, WORDS = "always one answer", "word embeddings alone"
LINE = ["encoder", "task", "constants", "order"]
"""What the cells of one line of a table or figure have in common."""
_TEXTS = (*LINE, "other", "metric", "positive", "one_answer", "contrast_with", "reason")


def summarise(results: pandas.DataFrame) -> pandas.DataFrame:
    """A row for every cell of the study with the columns ``SUMMARY_COLUMNS``, its score, drop and
    contrast with their intervals, and its baselines; in the study's own order, fractions from 1
    down to 0.
    """
    groups = dict(list(results.groupby([*LINE, "fraction"], sort=False)))
    found = {key: measured(group) for key, group in groups.items()}
    first_kind = results["constants"].iloc[0]
    rows = []
    for key, group in groups.items():
        first = group.iloc[0]
        metric = first["metric"]
        encoder, task, kind, order, fraction = key
        original = found.get((encoder, task, kind, order, 1.0))
        embeddings = measured(group, "word_embeddings")
        words = clipped(metric, joint(embeddings))
        answer = first["always_one_answer"], first["one_answer_influence"], unit_of(metric)
        reason = not_beaten(original, Measured.same(group["seed"], *answer), embeddings)
        of_first = found.get((encoder, task, first_kind, order, fraction))
        contrasted = kind != first_kind and fraction < 1 and of_first is not None
        ends = clipped(metric, joint(found[key]))
        if metric in UNLABELLED_METRICS and not first["constant_heads"]:
            # A model is as it is: no other rows, and no other seeds, would give another answer.
            ends = Interval(ends.mean, ends.mean, ends.mean, ends.seeds)
        rows.append(
            {
                **dict(zip([*LINE, "fraction"], key, strict=True)),
                "share_of_heads": 1 - first["constant_heads"] / first["heads"],
                "constant_heads": int(first["constant_heads"]),
                **first[["metric", "positive"]],
                "seeds": group["seed"].nunique(),
                **_written(ends, "mean", "low", "high"),
                "original": math.nan if original is None else joint(original).mean,
                **_lost(original, found[key], unchanged=fraction == 1),
                "contrast_with": first_kind if contrasted else "",
                **_contrast(of_first if contrasted else None, found[key]),
                **first[["always_one_answer", "one_answer"]],
                **_written(words, *(f"word_embeddings{end}" for end in ("", "_low", "_high"))),
                "beats_baseline": not reason,
                "reason": reason,
            }
        )
    summary = pandas.DataFrame(rows, columns=list(SUMMARY_COLUMNS))
    return summary.sort_values([*LINE, "fraction"], key=_position, ignore_index=True)


def _position(column: pandas.Series) -> numpy.ndarray:
    """Names stand in the order in which they come, fractions from 1 down to 0."""
    found = -column.to_numpy() if column.name == "fraction" else pandas.factorize(column)[0]
    return numpy.asarray(found)


def measured(group: pandas.DataFrame, what: str = "") -> Measured:
    """The scores in the rows of one cell, or those of ``word_embeddings`` there."""
    names = (what, f"{what}_influence") if what else ("score", "influence")
    score, lost = (dict(zip(group["seed"], group[name], strict=True)) for name in names)
    return Measured(score, lost, unit_of(group["metric"].iloc[0]))


def _contrast(first: Measured | None, other: Measured) -> dict[str, float]:
    """The columns of the first's score less the other's; nan where there is no first."""
    found = NOT_KNOWN if first is None else difference(first, other)
    return _written(found, "contrast", "contrast_low", "contrast_high")


def not_beaten(original: Measured | None, one_answer: Measured, word_embeddings: Measured) -> str:
    """Why an original score does not beat its baselines; "" where both differences' intervals are
    above 0. A baseline that is nan, as there is none, is no reason.
    """
    if original is None:
        return "the study has no fraction 1"
    lows = {
        name: difference(original, baseline).low
        for name, baseline in {ONE_ANSWER: one_answer, WORDS: word_embeddings}.items()
        if not any(map(math.isnan, baseline.scores.values()))
    }
    if any(map(math.isnan, lows.values())):
        if len(original.scores) == 1:
            return "one seed has no interval"
        if len(next(iter(original.influence.values()))) == 1:
            return "one validation row has no interval"
    names = [name for name, low in lows.items() if not low > 0]
    return f"does not beat {' or '.join(names)}" if names else ""


def _lost(original: Measured | None, cell: Measured, *, unchanged: bool) -> dict[str, float]:
    """The columns of how far a cell's score lies below the original."""
    if original is None:
        lost = drop = NOT_KNOWN
    elif unchanged:
        lost = drop = Interval(0.0, 0.0, 0.0, len(cell.scores))
    else:
        lost, drop = difference(original, cell), paired_drop(original, cell)
    return {
        **_written(lost, "difference", "difference_low", "difference_high"),
        **_written(drop, "relative_drop", "drop_low", "drop_high"),
    }


def _written(found: Interval, *columns: str) -> dict[str, float]:
    return dict(zip(columns, (found.mean, found.low, found.high), strict=True))


def read_table(path: Path) -> pandas.DataFrame:
    """``summary.csv``, ``orders.csv`` or ``order_scores.csv`` as it was written: a class may be
    called "None".
    """
    columns = pandas.read_csv(path, nrows=0).columns
    return pandas.read_csv(
        path,
        dtype={column: str for column in columns if column in _TEXTS},
        keep_default_na=False,
        na_values={column: [""] for column in columns if column not in _TEXTS},
    )


def reason_sentence(cell: Any) -> str:
    """The reason of a row as a clause of its own."""
    reason = str(cell["reason"])
    not_beaten = reason.startswith("does not beat")
    return f"the original {reason} by more than its interval" if not_beaten else reason


def distinct_results(summary: pandas.DataFrame) -> pandas.DataFrame:
    """The first row of each result, however many cells share it."""
    results = [Cell.of(row).result() for row in summary.to_dict("records")]
    return summary[~pandas.Series(results, index=summary.index, dtype=object).duplicated()]


def main_lines(summary: pandas.DataFrame) -> pandas.DataFrame:
    """One line for each encoder and task: the study's first constants and head order."""
    first = summary.iloc[0]
    same = (summary["constants"] == first["constants"]) & (summary["order"] == first["order"])
    return summary[same]


def compared(results: Mapping[str, pandas.DataFrame]) -> pandas.DataFrame:
    """The summaries of studies as one table.

    Returns:
        The columns ``study`` and ``SUMMARY_COLUMNS``; rows that the studies have in common are
        adjacent. Each study's drops are relative to its own original score; contrasts are with the
        first study.
    """
    name, first = next(iter(results.items()))
    cells = _cells(first)
    parts = [
        _beside(name, {} if frame is first else cells, frame).assign(study=study)
        for study, frame in results.items()
    ]
    whole = pandas.concat(parts, ignore_index=True)[["study", *SUMMARY_COLUMNS]]
    lines = whole.groupby(LINE, sort=False).ngroup()
    return whole.loc[lines.sort_values(kind="stable").index].reset_index(drop=True)


def _cells(results: pandas.DataFrame) -> dict[Any, Measured]:
    """The scores of each cell, by the cell and its metric; seeds by their number in the study."""
    groups = results.groupby([*LINE, "fraction", "metric"], sort=False)
    return {key: measured(group.assign(seed=range(len(group)))) for key, group in groups}


def _beside(
    name: str, first: Mapping[Any, Measured], results: pandas.DataFrame
) -> pandas.DataFrame:
    """A study's summary with its contrasts to the same cells of the study ``name``."""
    summary, own = summarise(results), _cells(results)
    keys = list(summary[[*LINE, "fraction", "metric"]].itertuples(index=False, name=None))
    contrasts = [
        {"contrast_with": name if key in first else "", **_contrast(first.get(key), own[key])}
        for key in keys
    ]
    return summary.assign(**pandas.DataFrame(contrasts, index=summary.index))
