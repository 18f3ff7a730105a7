"""The summary of one study or several: every cell's score, drop and baselines, and means over tasks
of drops.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas

from papa.scores.drops import perplexity_ratio
from papa.scores.intervals import (
    NOT_KNOWN,
    Interval,
    SeedScores,
    clipped,
    example_unit,
    interval_over_seeds_and_examples,
    paired_difference,
    paired_drop,
)
from papa.scores.levels import CONFIDENCE
from papa.spec.columns import LINE
from papa.spec.orders import Cell
from papa.spec.task import LOSS, UNLABELLED_METRICS

ONE_ANSWER = "the best single answer"
WORDS = "word embeddings alone"
_NOT_BEATEN = "does not beat "
_SAME_ANSWER = "answers "
INFLUENCE = ["influence", "one_answer_influence", "word_embeddings_influence"]
"""The columns of results with a number for each validation row."""
_TEXT_COLUMNS = (
    *LINE,
    "other",
    "metric",
    "positive",
    "one_answer",
    "contrast_with",
    "reason",
    "pair",
)
"""The columns of stored tables that hold text."""
_CellKey = tuple[str, str, str, str, float]
"""The values of ``LINE`` and the fraction."""


def summarise(results: pandas.DataFrame, drop_confidence: float = CONFIDENCE) -> pandas.DataFrame:
    """Return a row for every cell of the study, as in ``summary.csv`` (docs/results.md): its score,
    drop and contrast with their intervals, and its baselines; in the order of the study, fractions
    from 1 down to 0. ``results`` are as in ``results.parquet``; ``drop_confidence`` is of the
    intervals of drops, and all others are 95 % intervals.
    """
    groups = dict(list(results.groupby([*LINE, "fraction"], sort=False)))
    scores = {key: seed_scores(group) for key, group in groups.items()}
    kinds = results["constants"].unique()
    reference_kind = "average" if "average" in kinds else kinds[0]
    rows = [_row_of_cell(key, groups, scores, reference_kind, drop_confidence) for key in groups]
    summary = pandas.DataFrame(rows).astype({"beats_baseline": "boolean"})
    return summary.sort_values([*LINE, "fraction"], key=_position, ignore_index=True)


def _row_of_cell(
    key: _CellKey,
    groups: Mapping[_CellKey, pandas.DataFrame],
    scores: Mapping[_CellKey, SeedScores],
    reference_kind: str,
    drop_confidence: float,
) -> dict[str, Any]:
    """Return the row of one cell of ``summarise``.

    Args:
        key: Of the cell.
        groups: The results of every cell.
        scores: The scores of every cell.
        reference_kind: The substitute that others are contrasted with.
        drop_confidence: Of the intervals of drops.
    """
    rows = groups[key]
    first_row = rows.iloc[0]
    metric = first_row["metric"]
    encoder, task, kind, order, fraction = key
    original_key = (encoder, task, kind, order, 1.0)
    original = scores.get(original_key)
    embeddings = seed_scores(rows, "word_embeddings", "word_embeddings_influence")
    answer = seed_scores(rows, "always_one_answer", "one_answer_influence")
    not_beaten_reason = baselines_not_beaten_reason(original, answer, embeddings)
    has_baseline = first_row[["always_one_answer", "word_embeddings"]].notna().any()
    reference = None
    if kind != reference_kind and fraction < 1:
        reference = scores.get((encoder, task, reference_kind, order, fraction))
    score = clipped(metric, interval_over_seeds_and_examples(scores[key]))
    if metric in UNLABELLED_METRICS and not first_row["constant_heads"]:
        # The model agrees with itself on any rows and seeds: there is nothing to estimate.
        score = Interval.around(score.mean, 0.0)
    embeddings_score = clipped(metric, interval_over_seeds_and_examples(embeddings))
    return {
        **dict(zip([*LINE, "fraction"], key, strict=True)),
        "share_of_heads": 1 - first_row["constant_heads"] / first_row["heads"],
        "constant_heads": int(first_row["constant_heads"]),
        **first_row[["metric", "positive"]],
        "seeds": rows["seed"].nunique(),
        **interval_columns(score, "mean", "low", "high"),
        "original": interval_over_seeds_and_examples(original).mean if original else math.nan,
        **_drop_columns(metric, fraction, original, scores[key], drop_confidence),
        **_contrast(reference_kind, reference, scores[key]),
        **first_row[["always_one_answer", "one_answer"]],
        **interval_columns(embeddings_score, "word_embeddings"),
        "beats_baseline": not not_beaten_reason if has_baseline else pandas.NA,
        "reason": _same_answer_reason(groups.get(original_key)) or not_beaten_reason,
    }


def _drop_columns(
    metric: str,
    fraction: float,
    original: SeedScores | None,
    scores: SeedScores,
    confidence: float,
) -> dict[str, float]:
    """Return the columns of a cell's drop: the difference, and its share of the original's score;
    of a loss instead the ratio of perplexities.
    """
    lost = NOT_KNOWN
    drop = NOT_KNOWN
    ratio = NOT_KNOWN
    if fraction == 1:
        lost = Interval.around(0.0, 0.0)
        drop = lost
    elif original:
        lost = paired_difference(original, scores, confidence)
        drop = paired_drop(original, scores, confidence)
    if metric == LOSS:
        drop = NOT_KNOWN
        ratio = Interval(*map(perplexity_ratio, (lost.mean, lost.low, lost.high)))
    return {
        **interval_columns(lost, "difference"),
        **interval_columns(drop, "relative_drop", "drop_low", "drop_high"),
        **interval_columns(ratio, "perplexity_ratio"),
    }


def first_occurrence(names: pandas.Series) -> pandas.Series:
    """Return a sort key of names: the number of each by its first occurrence."""
    return pandas.Series(pandas.factorize(names)[0], names.index)


def _position(column: pandas.Series) -> pandas.Series:
    """Return a sort key: names by their first occurrence, fractions from 1 down to 0."""
    return -column if column.name == "fraction" else first_occurrence(column)


def seed_scores(
    group: pandas.DataFrame, score_column: str = "score", influence_column: str = "influence"
) -> SeedScores:
    """Return the scores in the rows of one cell, or by other columns those of a baseline."""
    scores = dict(zip(group["seed"], group[score_column], strict=True))
    influence = dict(zip(group["seed"], group[influence_column], strict=True))
    return SeedScores(scores, influence, example_unit(group["metric"].iloc[0]))


def interval_columns(
    interval: Interval, mean: str, low: str = "", high: str = ""
) -> dict[str, float]:
    """Return an interval as columns of these names (default: MEAN, MEAN_low and MEAN_high)."""
    return {
        mean: interval.mean,
        low or f"{mean}_low": interval.low,
        high or f"{mean}_high": interval.high,
    }


def _contrast(
    name: str, reference: SeedScores | None, scores: SeedScores
) -> dict[str, str | float]:
    """Return the columns of the difference to the reference of that name, if there is one."""
    interval = paired_difference(reference, scores) if reference else NOT_KNOWN
    return {"contrast_with": name if reference else "", **interval_columns(interval, "contrast")}


def baselines_not_beaten_reason(
    original: SeedScores | None, one_answer: SeedScores, word_embeddings: SeedScores
) -> str:
    """Return why an original score does not beat its baselines; "" if the intervals of both
    differences are above 0. A baseline of nan does not exist and does not count.
    """
    if original is None:
        return "the study has no fraction 1"
    lows = {
        name: paired_difference(original, baseline).low
        for name, baseline in {ONE_ANSWER: one_answer, WORDS: word_embeddings}.items()
        if not any(map(math.isnan, baseline.scores.values()))
    }
    if any(map(math.isnan, lows.values())):
        if len(original.scores) == 1:
            return "one seed has no interval"
        if len(next(iter(original.influence.values()))) == 1:
            return "one validation row has no interval"
    names = [name for name, low in lows.items() if not low > 0]
    return _NOT_BEATEN + " or ".join(names) if names else ""


def _same_answer_reason(original: pandas.DataFrame | None) -> str:
    """Return that an original gives every example the same answer; "" if it does not, or if that is
    not known.
    """
    if original is None or "same_answer" not in original:
        return ""
    answer = original["same_answer"].iloc[0]
    return f"{_SAME_ANSWER}'{answer}' to every validation example" if answer else ""


def is_below_baseline(row: pandas.Series | Mapping[str, Any]) -> bool:
    """Return whether a row is inconclusive as its original does not beat a baseline."""
    return str(row["reason"]).startswith(_NOT_BEATEN)


def gives_one_answer(row: pandas.Series | Mapping[str, Any]) -> bool:
    """Return whether a row is inconclusive as its original gives one answer to all examples."""
    return str(row["reason"]).startswith(_SAME_ANSWER)


def inconclusive_clause(row: pandas.Series | Mapping[str, Any]) -> str:
    """Return why the drop of a row of the summary is inconclusive."""
    reason = str(row["reason"])
    if is_below_baseline(row):
        return (
            f"the original {reason} significantly: the interval of their difference is not above 0"
        )
    return f"the original {reason}" if gives_one_answer(row) else reason


def inconclusive_rows(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows of the summary whose drops are inconclusive."""
    return summary[summary["reason"] != ""]


def read_table(path: Path) -> pandas.DataFrame:
    """Read ``summary.csv``, ``orders.csv``, ``order_scores.csv`` or ``joint_effects.csv``.
    Columns of text are read as written, as a class may be called "None".
    """
    dtype = {**dict.fromkeys(_TEXT_COLUMNS, str), "beats_baseline": "boolean"}
    table = pandas.read_csv(path, dtype=dtype, keep_default_na=False, na_values=[""])
    texts = table.columns.intersection(list(_TEXT_COLUMNS))
    table[texts] = table[texts].fillna("")
    return table


def distinct_results(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Return the first row of each result, which several cells of a study may share."""
    results = [
        (row.get("study"), Cell.from_row(row).canonical()) for row in summary.to_dict("records")
    ]
    return summary[~pandas.Series(results, index=summary.index, dtype=object).duplicated()]


def distinct_fractions(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Leave out a fraction if in every line another one has as many constant heads, and is nearer
    to the share that they are: of 8 heads 1/16 keeps none, as 0 does.
    """
    lines = [axis for axis in ("study", *LINE) if axis in summary]
    errors = (summary["share_of_heads"] - summary["fraction"]).abs()
    nearest = summary.loc[errors.sort_values(kind="stable").index]
    kept = nearest.drop_duplicates([*lines, "constant_heads"])["fraction"]
    return summary[summary["fraction"].isin(kept)]


def compare_studies(results: Mapping[str, pandas.DataFrame]) -> pandas.DataFrame:
    """Return the summaries of studies as one table with ``study`` as its first column.

    Rows of the same line are adjacent. Contrasts are with the first study's same cells; seeds are
    paired by their rank, as studies may have other seeds.
    """
    columns = [*LINE, "fraction", "metric"]
    first_study = ""
    first_scores: dict[tuple[object, ...], SeedScores] = {}
    summaries = []
    for study, frame in results.items():
        groups = frame.groupby(columns, sort=False)
        scores = {key: seed_scores(cell.assign(seed=range(len(cell)))) for key, cell in groups}
        summary = summarise(frame)
        contrasts = pandas.DataFrame(
            [
                _contrast(first_study, first_scores.get(key), scores[key])
                for key in summary[columns].itertuples(index=False, name=None)
            ]
        )
        summary[contrasts.columns] = contrasts
        summary.insert(0, "study", study)
        summaries.append(summary)
        if not first_scores:
            first_study = study
            first_scores = scores
    table = pandas.concat(summaries, ignore_index=True)
    lines = table.groupby(LINE, sort=False).ngroup()
    return table.loc[lines.sort_values(kind="stable").index].reset_index(drop=True)


def drops_over_tasks(summary: pandas.DataFrame) -> tuple[pandas.DataFrame, dict[str, str]]:
    """Return original scores and relative drops at the lowest fraction (paper, Figure 3), means
    over tasks, of the study's first constants and order: a row for every encoder, with the mean of
    drops and the drop of the mean score (``drop_of_means``); and by task why it is left out, which
    happens for all encoders.
    """
    first = summary.iloc[0]
    line = summary[
        (summary["constants"] == first["constants"]) & (summary["order"] == first["order"])
    ]
    lowest = line["fraction"].min()
    cells = line[(line["fraction"] == lowest) & (lowest < 1) & line["original"].notna()]
    left_out = {}
    for task, task_cells in cells.groupby("task", sort=False):
        doubtful = inconclusive_rows(task_cells)["encoder"]
        if task_cells["metric"].iloc[0] == LOSS:
            left_out[str(task)] = "a loss drops by nats, not by a share"
        elif (task_cells["original"] <= 0).any() or task_cells["relative_drop"].isna().any():
            left_out[str(task)] = "a drop in percent needs positive scores"
        elif len(doubtful):
            left_out[str(task)] = f"{', '.join(doubtful)}: inconclusive"
    averaged = cells[~cells["task"].isin(list(left_out))]
    columns = ["original", "mean", "relative_drop"]
    points = averaged.groupby("encoder", sort=False)[columns].mean().reset_index()
    points["drop_of_means"] = 1 - points.pop("mean") / points["original"]
    return points, left_out
