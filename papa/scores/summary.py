"""The summary of a study, or of several: every cell's score and drop, and the baselines; what drops
say: which heads may become constant within one, and means over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from papa.errors import SpecError
from papa.scores.drops import MaxDrop, perplexity_ratio
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
from papa.spec.orders import Cell, Head
from papa.spec.task import LOSS, UNLABELLED_METRICS

ONE_ANSWER, WORDS = "always one answer", "word embeddings alone"
LINE = ["encoder", "task", "constants", "order"]
"""What the cells of one line of a table or figure have in common."""
INFLUENCE = ["influence", "one_answer_influence", "word_embeddings_influence"]
"""The columns of results with a number for each validation row."""
_DROP = {
    False: ("relative_drop", "drop_low", "drop_high"),
    True: ("difference", "difference_low", "difference_high"),
}
"""The columns with a drop and the bounds of its interval, by whether the metric is a loss."""
_TEXTS = (*LINE, "other", "metric", "positive", "one_answer", "contrast_with", "reason")


def summarise(results: pandas.DataFrame) -> pandas.DataFrame:
    """A row for every cell of the study, as in ``summary.csv`` (docs/results.md): its score, drop
    and contrast with their intervals, and its baselines; in the study's own order, fractions from 1
    down to 0.
    """
    groups = dict(list(results.groupby([*LINE, "fraction"], sort=False)))
    found = {key: measured(group) for key, group in groups.items()}
    kinds = results["constants"].unique()
    compared = "average" if "average" in kinds else kinds[0]
    rows = []
    for key, group in groups.items():
        first = group.iloc[0]
        metric = first["metric"]
        encoder, task, kind, order, fraction = key
        uncut = encoder, task, kind, order, 1.0
        original = found.get(uncut)
        embeddings = measured(group, "word_embeddings", "word_embeddings_influence")
        answer = measured(group, "always_one_answer", "one_answer_influence")
        unbeaten = not_beaten(original, answer, embeddings)
        has_baseline = first[["always_one_answer", "word_embeddings"]].notna().any()
        reason = _without_variety(groups.get(uncut)) or unbeaten
        contrasted = kind != compared and fraction < 1
        beside = found.get((encoder, task, compared, order, fraction)) if contrasted else None
        ends = clipped(metric, joint(found[key]))
        if metric in UNLABELLED_METRICS and not first["constant_heads"]:
            # A model is as it is: no other rows, and no other seeds, would give another answer.
            ends = Interval.around(ends.mean, 0.0)
        lost = drop = NOT_KNOWN
        if fraction == 1:
            lost = drop = Interval.around(0.0, 0.0)
        elif original:
            lost, drop = difference(original, found[key]), paired_drop(original, found[key])
        ratio = NOT_KNOWN
        if metric == LOSS:
            drop = NOT_KNOWN
            ratio = Interval(*map(perplexity_ratio, (lost.mean, lost.low, lost.high)))
        rows.append(
            {
                **dict(zip([*LINE, "fraction"], key, strict=True)),
                "share_of_heads": 1 - first["constant_heads"] / first["heads"],
                "constant_heads": int(first["constant_heads"]),
                **first[["metric", "positive"]],
                "seeds": group["seed"].nunique(),
                **ends_of(ends, "mean", "low", "high"),
                "original": joint(original).mean if original else math.nan,
                **ends_of(lost, "difference"),
                **ends_of(drop, "relative_drop", "drop_low", "drop_high"),
                **ends_of(ratio, "perplexity_ratio"),
                **_contrast(compared, beside, found[key]),
                **first[["always_one_answer", "one_answer"]],
                **ends_of(clipped(metric, joint(embeddings)), "word_embeddings"),
                "beats_baseline": not unbeaten if has_baseline else pandas.NA,
                "reason": reason,
            }
        )
    summary = pandas.DataFrame(rows).astype({"beats_baseline": "boolean"})
    return summary.sort_values([*LINE, "fraction"], key=_position, ignore_index=True)


def _position(column: pandas.Series) -> pandas.Series:
    """Names stand in the order in which they come, fractions from 1 down to 0."""
    return -column if column.name == "fraction" else pandas.Series(pandas.factorize(column)[0])


def measured(group: pandas.DataFrame, *columns: str) -> Measured:
    """The scores in the rows of one cell, or those of a baseline there."""
    names = columns or ("score", "influence")
    score, lost = (dict(zip(group["seed"], group[name], strict=True)) for name in names)
    return Measured(score, lost, unit_of(group["metric"].iloc[0]))


def ends_of(found: Interval, mean: str, low: str = "", high: str = "") -> dict[str, float]:
    low, high = low or f"{mean}_low", high or f"{mean}_high"
    return {mean: found.mean, low: found.low, high: found.high}


def _contrast(name: str, first: Measured | None, other: Measured) -> dict[str, Any]:
    found = difference(first, other) if first else NOT_KNOWN
    return {"contrast_with": name if first else "", **ends_of(found, "contrast")}


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


def _without_variety(original: pandas.DataFrame | None) -> str:
    """That an original answers the same to every example; "" where it does not, or nobody knows."""
    if original is None or "same_answer" not in original:
        return ""
    answer = original["same_answer"].iloc[0]
    return f"answers '{answer}' to every validation example" if answer else ""


def reason_sentence(cell: Any) -> str:
    """The reason of a row as a clause of its own."""
    reason = str(cell["reason"])
    if reason.startswith("does not beat"):
        return f"the original {reason} by more than its interval"
    return f"the original {reason}" if reason.startswith("answers") else reason


def read_table(path: Path) -> pandas.DataFrame:
    """``summary.csv``, ``orders.csv`` or ``order_scores.csv`` as it was written: a class may be
    called "None".
    """
    columns = pandas.read_csv(path, nrows=0).columns
    return pandas.read_csv(
        path,
        dtype={column: str for column in columns if column in _TEXTS}
        | ({"beats_baseline": "boolean"} if "beats_baseline" in columns else {}),
        keep_default_na=False,
        na_values={column: [""] for column in columns if column not in _TEXTS},
    )


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
    """The summaries of studies as one table, ``study`` first; rows that they have in common are
    adjacent, contrasts are with the first study's same cells, seeds paired by their number.
    """
    columns = [*LINE, "fraction", "metric"]
    name, first, parts = "", dict[Any, Measured](), []
    for study, frame in results.items():
        groups = frame.groupby(columns, sort=False)
        own = {key: measured(cell.assign(seed=range(len(cell)))) for key, cell in groups}
        summary = summarise(frame)
        keys = summary[columns].itertuples(index=False, name=None)
        contrasts = pandas.DataFrame([_contrast(name, first.get(key), own[key]) for key in keys])
        parts.append(summary.assign(study=study, **contrasts))
        if not first:
            name, first = study, own
    whole = pandas.concat(parts, ignore_index=True)
    whole.insert(0, "study", whole.pop("study"))
    lines = whole.groupby(LINE, sort=False).ngroup()
    return whole.loc[lines.sort_values(kind="stable").index].reset_index(drop=True)


def heads_at(
    summary: pandas.DataFrame,
    constant_heads: Mapping[Cell, Sequence[Head] | None],
    max_drop: MaxDrop,
) -> pandas.DataFrame:
    """Which heads may become constant within a drop of the score (paper, Sections 3.4 and 4.2;
    docs/results.md): a row for every cell with constant heads, in each line the fewest first, with
    the metric, the drop (a share, or the nats of a loss), the verdict, the reason why nothing can
    be told ("" where something can), and ``heads``, the ``constant_heads`` of the cell; None where
    each seed has others.

    Raises:
        SpecError: the drop has a unit that means nothing for any of the metrics.
    """
    mismatches = {metric: max_drop.mismatch(metric) for metric in summary["metric"].unique()}
    if all(mismatches.values()):
        task, metric = summary[["task", "metric"]].iloc[0]
        raise SpecError(f"task '{task}' is scored by {metric}: {mismatches[metric]}")
    rows = []
    for _, line in summary.groupby(LINE, sort=False):
        metric = line["metric"].iloc[0]
        reason, all_within = mismatches[metric] or _doubt(line), True
        limit = max_drop.limit(metric) or 0.0
        constant = line[line["constant_heads"] > 0].sort_values("constant_heads")
        for row in constant.to_dict("records"):
            drop, low, high = (row[name] for name in _DROP[metric == LOSS])
            verdict = "undecided" if reason else verdict_on(low, high, limit, all_within)
            # A cell of which no example differs has no interval, and keeps none from being told.
            all_within = verdict == "within" or (all_within and math.isnan(high))
            judged = (verdict, reason, constant_heads.get(Cell.of(row)))
            of_cell = (row[name] for name in (*LINE, "metric", "fraction", "constant_heads"))
            rows.append((*of_cell, drop, low, high, *judged))
    columns = ["fraction", "constant_heads", "drop", "low", "high", "verdict", "reason", "heads"]
    return pandas.DataFrame(rows, columns=[*LINE, "metric", *columns])


def verdict_on(low: float, high: float, max_drop: float, all_within: bool) -> str:
    """What a drop's interval says, given whether every smaller number of heads is within."""
    if high <= max_drop and all_within:
        return "within"
    return "beyond" if low > max_drop else "undecided"


def _doubt(line: pandas.DataFrame) -> str:
    first = line.iloc[0]
    if not (line["fraction"] == 1).any():
        return "it has no fraction 1"
    if first["seeds"] == 1:
        return "one seed has no interval: give the study more seeds"
    if first["reason"]:
        return reason_sentence(first)
    if first["metric"] != LOSS and line["relative_drop"].isna().any():
        return "the original's score comes near 0, and a share of it says nothing"
    return ""


def drops_over_tasks(summary: pandas.DataFrame) -> tuple[pandas.DataFrame, dict[str, str]]:
    """Original scores and relative drops at the lowest fraction (paper, Figure 3), means over the
    tasks that all encoders share, by the first constants and order: a row for every encoder, with
    the other reading of an average drop, that of the mean score (``drop_of_means``); and, by task,
    why others are left out.
    """
    line = main_lines(summary)
    lowest = line["fraction"].min()
    cells = line[(line["fraction"] == lowest) & (lowest < 1) & line["original"].notna()]
    left_out = {}
    for task, own in cells.groupby("task", sort=False):
        doubtful = own.loc[own["reason"] != "", "encoder"]
        if own["metric"].iloc[0] == LOSS:
            left_out[str(task)] = "a loss drops by nats, not by a share"
        elif (own["original"] <= 0).any() or own["relative_drop"].isna().any():
            left_out[str(task)] = "a drop in percent needs positive scores"
        elif len(doubtful):
            left_out[str(task)] = f"{', '.join(doubtful)}: inconclusive"
    kept = cells[~cells["task"].isin(list(left_out))]
    columns = ["original", "mean", "relative_drop"]
    points = kept.groupby("encoder", sort=False)[columns].mean().reset_index()
    points["drop_of_means"] = 1 - points.pop("mean") / points["original"]
    return points, left_out
