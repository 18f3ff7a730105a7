"""The summary of a study: every cell's score and drop with intervals, and its baselines."""

from __future__ import annotations

from pathlib import Path

import numpy
import pandas

from papa.reporting.columns import SUMMARY_COLUMNS, renamed
from papa.reporting.verdicts import not_beaten
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

_NAMES = ("positive", "one_answer", "contrast_with")
LINE = ["encoder", "task", "constants", "order"]
"""What the cells of one line of a table or figure have in common."""


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
        reason = not_beaten(original, _one_answer(group), embeddings)
        of_first = found.get((encoder, task, first_kind, order, fraction))
        contrasted = kind != first_kind and fraction < 1 and of_first is not None
        rows.append(
            {
                **dict(zip([*LINE, "fraction"], key, strict=True)),
                "share_of_heads": 1 - first["constant_heads"] / first["heads"],
                "constant_heads": int(first["constant_heads"]),
                **first[["metric", "positive"]],
                "seeds": group["seed"].nunique(),
                **_written(clipped(metric, joint(found[key])), "mean", "low", "high"),
                "original": numpy.nan if original is None else joint(original).mean,
                **_lost(original, found[key], unchanged=fraction == 1),
                "contrast_with": first_kind if contrasted else "",
                **contrast(of_first if contrasted else None, found[key]),
                **first[["always_one_answer", "one_answer"]],
                **_written(words, *(f"word_embeddings{end}" for end in ("", "_low", "_high"))),
                "beats_baseline": not reason,
                "reason": reason,
            }
        )
    summary = pandas.DataFrame(rows, columns=list(SUMMARY_COLUMNS))
    positions = {
        axis: {value: position for position, value in enumerate(results[axis].unique())}
        for axis in LINE
    }
    summary = summary.sort_values(
        [*LINE, "fraction"],
        key=lambda column: (
            column.map(positions[column.name]) if column.name in positions else -column
        ),
        kind="stable",
    )
    return summary.reset_index(drop=True)


def measured(group: pandas.DataFrame, what: str = "") -> Measured:
    """The scores in the rows of one cell, or those of ``word_embeddings`` there."""
    names = (what, f"{what}_influence") if what else ("score", "influence")
    score, lost = (dict(zip(group["seed"], group[name], strict=True)) for name in names)
    return Measured(score, lost, unit_of(group["metric"].iloc[0]))


def contrast(first: Measured | None, other: Measured) -> dict[str, float]:
    """The columns of the first's score less the other's; nan where there is no first."""
    found = NOT_KNOWN if first is None else difference(first, other)
    return _written(found, "contrast", "contrast_low", "contrast_high")


def _one_answer(group: pandas.DataFrame) -> Measured:
    first = group.iloc[0]
    answer = first["always_one_answer"], first["one_answer_influence"]
    return Measured.same(group["seed"], *answer, unit_of(first["metric"]))


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


def read_summary(path: Path) -> pandas.DataFrame:
    """``summary.csv`` as ``summarise`` made it: a class may be called "None"."""
    texts = dict.fromkeys([*LINE, "model", "metric", *_NAMES, "reason"], str)
    return renamed(
        pandas.read_csv(path, dtype=texts, keep_default_na=False, na_values=_numbers_missing())
    )


def _numbers_missing() -> dict[str, list[str]]:
    texts = {*LINE, "metric", *_NAMES, "reason"}
    return {column: [""] for column in SUMMARY_COLUMNS if column not in texts}


def distinct_results(summary: pandas.DataFrame) -> pandas.DataFrame:
    """The first row of each result, however many cells share it."""
    results = [Cell.of(row).result() for row in summary.to_dict("records")]
    return summary[~pandas.Series(results, index=summary.index, dtype=object).duplicated()]
