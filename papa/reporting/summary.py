"""The summary of a study: every point's score and relative drop with their intervals, and its baselines."""

from __future__ import annotations

from pathlib import Path

import numpy
import pandas

from papa.reporting.verdicts import not_beaten
from papa.scores.intervals import interval, paired_drop

OVER_EXAMPLES = ("score_examples_low", "score_examples_high", "drop_examples_low", "drop_examples_high")
_NAMES = ("positive", "one_answer")
SUMMARY_COLUMNS = (
    "model",
    "task",
    "constants",
    "order",
    "fraction",
    "share_of_heads",
    "constant_heads",
    "metric",
    "positive",
    "seeds",
    "mean",
    "low",
    "high",
    "original",
    "relative_drop",
    "drop_low",
    "drop_high",
    *OVER_EXAMPLES,
    "always_one_answer",
    "one_answer",
    "word_embeddings",
    "word_embeddings_low",
    "word_embeddings_high",
    "beats_baseline",
    "reason",
)
_COMBINATION = ["model", "task", "constants", "order"]


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
    """Every point of the study: its score and relative drop with their intervals, and its baselines.

    Args:
        results: one row per cell, with the columns of ``results.parquet`` (docs/results.md). A point that several
            combinations share may be listed for each of them or once. Results of older versions lack some columns.

    Returns:
        One row for every model, task, constants, order and fraction with the columns ``SUMMARY_COLUMNS``
        (docs/results.md); the study's own order, fractions from 1 down to 0.
    """
    complete = with_shared_points(_with_all_columns(results))
    rows = []
    originals = {
        key: _by_seed(group, "score")
        for key, group in complete[complete["fraction"] == 1.0].groupby(_COMBINATION, sort=False)
    }
    for key, group in complete.groupby([*_COMBINATION, "fraction"], sort=False):
        first, over_seeds = group.iloc[0], interval(group["score"].tolist())
        original = originals.get(key[:-1], {})
        drop = paired_drop(original, _by_seed(group, "score"))
        words = interval(group.drop_duplicates("seed")["word_embeddings"].tolist())
        full = interval(list(original.values())) if original else None
        reason = not_beaten(full, first["always_one_answer"], words.mean)
        rows.append(
            {
                **dict(zip([*_COMBINATION, "fraction"], key, strict=True)),
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
    positions = {
        axis: {value: position for position, value in enumerate(results[axis].unique())} for axis in _COMBINATION
    }
    summary = summary.sort_values(
        [*_COMBINATION, "fraction"],
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
    texts = [*_COMBINATION, "metric", *_NAMES, "reason"]
    return pandas.read_csv(path, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=_numbers_missing())


def _numbers_missing() -> dict[str, list[str]]:
    texts = {*_COMBINATION, "metric", *_NAMES, "reason"}
    return {column: [""] for column in SUMMARY_COLUMNS if column not in texts}
