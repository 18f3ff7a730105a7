"""The summary of a study: every cell's score and relative drop with their intervals, and its baselines."""

from __future__ import annotations

from pathlib import Path

import numpy
import pandas

from papa.reporting.columns import SUMMARY_COLUMNS
from papa.reporting.verdicts import not_beaten
from papa.scores.intervals import interval, paired_drop
from papa.spec.cells import Cell

OVER_EXAMPLES = ("score_examples_low", "score_examples_high", "drop_examples_low", "drop_examples_high")
_NAMES = ("positive", "one_answer")
LINE = ["model", "task", "constants", "order"]
"""What the cells of one line of a table or figure have in common."""


def summarise(results: pandas.DataFrame) -> pandas.DataFrame:
    """Every cell of the study: its score and relative drop with their intervals, and its baselines.

    Args:
        results: a row for every cell and seed, with ``RESULT_COLUMNS``; results of older versions lack some.

    Returns:
        A row for every cell with the columns ``SUMMARY_COLUMNS``; the study's own order, fractions from 1 down to 0.
    """
    complete = _with_all_columns(results)
    rows = []
    originals = {
        key: _by_seed(group, "score") for key, group in complete[complete["fraction"] == 1.0].groupby(LINE, sort=False)
    }
    for key, group in complete.groupby([*LINE, "fraction"], sort=False):
        first, over_seeds = group.iloc[0], interval(group["score"].tolist())
        original = originals.get(key[:-1], {})
        drop = paired_drop(original, _by_seed(group, "score"))
        words = interval(group.drop_duplicates("seed")["word_embeddings"].tolist())
        full = interval(list(original.values())) if original else None
        reason = not_beaten(full, first["always_one_answer"], words.mean)
        rows.append(
            {
                **dict(zip([*LINE, "fraction"], key, strict=True)),
                "share_of_heads": 1 - first["constant_heads"] / first["heads"],
                "constant_heads": int(first["constant_heads"]),
                **first[["metric", "positive"]],
                "seeds": group["seed"].nunique(),
                "mean": over_seeds.mean,
                "low": over_seeds.low,
                "high": over_seeds.high,
                "original": numpy.nan if full is None else full.mean,
                "relative_drop": drop.mean,
                "drop_low": drop.low,
                "drop_high": drop.high,
                **first[[*OVER_EXAMPLES, "always_one_answer", "one_answer"]],
                "word_embeddings": words.mean,
                "word_embeddings_low": words.low,
                "word_embeddings_high": words.high,
                "beats_baseline": not reason,
                "reason": reason,
            }
        )
    summary = pandas.DataFrame(rows, columns=list(SUMMARY_COLUMNS))
    positions = {axis: {value: position for position, value in enumerate(results[axis].unique())} for axis in LINE}
    summary = summary.sort_values(
        [*LINE, "fraction"],
        key=lambda column: column.map(positions[column.name]) if column.name in positions else -column,
        kind="stable",
    )
    return summary.reset_index(drop=True)


def _with_all_columns(results: pandas.DataFrame) -> pandas.DataFrame:
    """The results with what older versions did not write: unknown numbers, empty names."""
    numbers = ("heads", "always_one_answer", "word_embeddings", *OVER_EXAMPLES)
    unknown = {**dict.fromkeys(numbers, numpy.nan), **dict.fromkeys(_NAMES, "")}
    return results.assign(**{name: value for name, value in unknown.items() if name not in results})


def _by_seed(group: pandas.DataFrame, column: str) -> dict[int, float]:
    return dict(zip(group["seed"], group[column], strict=True))


def read_summary(path: Path) -> pandas.DataFrame:
    """``summary.csv`` as ``summarise`` made it: a class may be called "None"."""
    texts = [*LINE, "metric", *_NAMES, "reason"]
    return pandas.read_csv(path, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=_numbers_missing())


def _numbers_missing() -> dict[str, list[str]]:
    texts = {*LINE, "metric", *_NAMES, "reason"}
    return {column: [""] for column in SUMMARY_COLUMNS if column not in texts}


def distinct_results(summary: pandas.DataFrame) -> pandas.DataFrame:
    """The first row of each result, however many cells share it.

    Args:
        summary: rows of ``summarise``'s.
    """
    results = [Cell.of(row).result() for row in summary.to_dict("records")]
    return summary[~pandas.Series(results, index=summary.index, dtype=object).duplicated()]
