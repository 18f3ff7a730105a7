"""What drops of the score say: which heads may become constant within one, and means over tasks.

A number of constant heads is within a drop where the upper end of its drop's 95 % interval over
seeds and examples is (paper, Sections 3.4 and 4.2), and so is that of every smaller number: tested
from few heads to many up to the first failure, the chance that any "within" is wrong stays that of
a single test, 2.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import pandas

from papa.scores.summary import LINE, main_lines, reason_sentence
from papa.spec.orders import Cell, Head

Verdict = Literal["within", "undecided", "beyond"]


def heads_at(
    summary: pandas.DataFrame,
    constant_heads: Mapping[Cell, Sequence[Head] | None],
    max_drop: float,
) -> pandas.DataFrame:
    """Which heads may become constant within a relative drop of the score, a share: a row for every
    cell of a summary with constant heads, in each line the fewest first, with the drop, the
    verdict, the reason why nothing can be told ("" where something can), and ``heads``, the
    ``constant_heads`` of the cell; None where each seed has others.
    """
    lines = [
        line[line["constant_heads"] > 0].sort_values("constant_heads").assign(reason=_doubt(line))
        for _, line in summary.groupby(LINE, sort=False)
    ]
    ends = {"relative_drop": "drop", "drop_low": "low", "drop_high": "high"}
    kept = [*LINE, "fraction", "constant_heads", *ends, "reason"]
    found = pandas.concat(lines, ignore_index=True)[kept].rename(columns=ends)
    verdicts: list[Verdict] = []
    for _, line in found.groupby(LINE, sort=False):
        all_within = True
        for row in line.to_dict("records"):
            verdict = verdict_on(row["low"], row["high"], max_drop, all_within)
            verdicts.append("undecided" if row["reason"] else verdict)
            all_within = verdicts[-1] == "within"
    found["verdict"] = verdicts
    found["heads"] = [constant_heads.get(Cell.of(row)) for row in found.to_dict("records")]
    columns = ["fraction", "constant_heads", "drop", "low", "high", "verdict", "reason", "heads"]
    return found[[*LINE, *columns]]


def verdict_on(low: float, high: float, max_drop: float, all_within: bool) -> Verdict:
    """What a drop's interval says of a number of heads, given whether every smaller number is
    within.
    """
    if high <= max_drop and all_within:
        return "within"
    return "beyond" if low > max_drop else "undecided"


def _doubt(line: pandas.DataFrame) -> str:
    """Why the cells of a line tell of no drop; "" where they do."""
    first = line.iloc[0]
    if not (line["fraction"] == 1).any():
        return "it has no fraction 1"
    if first["seeds"] == 1:
        return "one seed has no interval: give the study more seeds"
    if line["relative_drop"].isna().any():
        return "the original's score comes near 0, and a share of it says nothing"
    return "" if first["beats_baseline"] else reason_sentence(first)


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
        beaten = own.loc[~own["beats_baseline"].astype(bool), "encoder"]
        if (own["original"] <= 0).any() or own["relative_drop"].isna().any():
            left_out[str(task)] = "a drop in percent needs positive scores"
        elif len(beaten):
            left_out[str(task)] = f"{', '.join(beaten)}: the original does not beat its baselines"
    kept = cells[~cells["task"].isin(list(left_out))]
    columns = ["original", "mean", "relative_drop"]
    points = kept.groupby("encoder", sort=False)[columns].mean().reset_index()
    points["drop_of_means"] = 1 - points.pop("mean") / points["original"]
    return points, left_out


def correlation(points: pandas.DataFrame) -> float:
    """Pearson's r of original score and drop; nan below three encoders or without variance."""
    original, drop = points["original"], points["relative_drop"]
    if len(points) < 3 or original.nunique() < 2 or drop.nunique() < 2:
        return math.nan
    return float(original.corr(drop))
