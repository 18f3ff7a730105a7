"""What drops of the score say: which heads may become constant within one, and means over tasks.

A number of constant heads is within a drop where the upper end of its drop's 95 % interval over
seeds and examples is (paper, Sections 3.4 and 4.2), and so is that of every smaller number: tested
from few heads to many up to the first failure, the chance that any "within" is wrong stays that of
a single test, 2.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas

from papa.scores.summary import LINE, main_lines, reason_sentence
from papa.spec.cells import Cell
from papa.spec.orders import Head

Verdict = Literal["within", "undecided", "beyond"]


def heads_at(
    summary: pandas.DataFrame,
    constant_heads: Mapping[Cell, Sequence[Head] | None],
    max_drop: float,
) -> pandas.DataFrame:
    """Which heads may become constant within a relative drop of the score, a share.

    Args:
        summary: as ``summarise`` makes it.
        constant_heads: of each cell; None where each seed has others.

    Returns:
        A row for every cell with constant heads, in each line (encoder, task, constants, order) the
        fewest first: its fraction, ``constant_heads`` in number, the relative drop with its ends
        ``low`` and ``high``, the verdict, why nothing can be told ("" where something can), and
        ``heads``, as (layer, head) from 0.
    """
    rows = []
    for _, line in summary.groupby(LINE, sort=False):
        reason, all_within = _doubt(line), True
        for row in (
            line[line["constant_heads"] > 0].sort_values("constant_heads").to_dict("records")
        ):
            verdict: Verdict = verdict_on(row["drop_low"], row["drop_high"], max_drop, all_within)
            verdict = "undecided" if reason else verdict
            all_within = verdict == "within"
            cell = Cell.of(row)
            rows.append(
                {
                    **cell.columns(),
                    "constant_heads": row["constant_heads"],
                    "drop": row["relative_drop"],
                    "low": row["drop_low"],
                    "high": row["drop_high"],
                    "verdict": verdict,
                    "reason": reason,
                    "heads": constant_heads.get(cell),
                }
            )
    columns = [*LINE, "fraction", "constant_heads", "drop", "low", "high", "verdict", "reason"]
    return pandas.DataFrame(rows, columns=[*columns, "heads"])


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
    tasks that all encoders share, by the first constants and order.

    Returns:
        A row for every encoder: ``encoder``, ``original``, ``relative_drop`` and the other reading
        of an average drop, that of the mean score, ``drop_of_means``; and, by task, why others are
        left out: an encoder does not beat its baselines there, or a share of the score means
        nothing.
    """
    line = main_lines(summary)
    lowest = line["fraction"].min()
    cells = line[(line["fraction"] == lowest) & (lowest < 1) & line["original"].notna()]
    left_out = {
        str(task): reason
        for task, own in cells.groupby("task", sort=False)
        if (reason := _no_mean(own))
    }
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


def _no_mean(cells: pandas.DataFrame) -> str:
    """Why a task is in no mean; "" where it is."""
    if (cells["original"] <= 0).any() or cells["relative_drop"].isna().any():
        return "a drop in percent needs positive scores"
    beaten: Any = cells.loc[~cells["beats_baseline"].astype(bool), "encoder"]
    return f"{', '.join(beaten)}: the original does not beat its baselines" if len(beaten) else ""
