"""Which numbers of constant heads are known to stay within a drop of the score.

A number is within the drop where the upper end of its drop's 95 % interval over seeds and examples
is (paper, Sections 3.4 and 4.2), and so is that of every smaller number: tested from few heads to
many up to the first failure, the chance that any "within" is wrong stays that of a single test,
2.5 % for one line of a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import pandas

from papa.reporting.summary import LINE
from papa.reporting.tables import reason_sentence
from papa.scores.intervals import Interval

Verdict = Literal["within", "undecided", "beyond"]


def verdict_on(drop: Interval, max_drop: float, *, all_within: bool) -> Verdict:
    """What the drop of a number of heads says, given whether every smaller number is within it."""
    if drop.high <= max_drop and all_within:
        return "within"
    return "beyond" if drop.low > max_drop else "undecided"


def doubt(row: Mapping[str, Any]) -> str:
    """Why the summary's cells of an encoder on a task tell of no drop; "" where they do."""
    if row["seeds"] == 1:
        return "one seed has no interval: give the study more seeds"
    if math.isnan(row["relative_drop"]):
        return "the original's score comes near 0, and a share of it says nothing"
    return "" if row["beats_baseline"] else reason_sentence(row)


def drops_within(summary: pandas.DataFrame, max_drop: float) -> pandas.DataFrame:
    """A row for every number of constant heads of a summary, ascending in each line: constants,
    order, fraction, constant_heads, the relative drop with its ends low and high, the verdict, and
    why it is undecided where nothing can be told.
    """
    rows = []
    for _, line in summary.groupby(LINE, sort=False):
        all_within, original = True, bool((line["fraction"] == 1).any())
        for row in line.sort_values("constant_heads").to_dict("records"):
            drop = Interval(row["relative_drop"], row["drop_low"], row["drop_high"], row["seeds"])
            reason = doubt(row) if original else "it has no fraction 1"
            verdict = verdict_on(drop, max_drop, all_within=all_within)
            if row["constant_heads"]:
                verdict = "undecided" if reason else verdict
                all_within = verdict == "within"
                named = {name: row[name] for name in (*LINE, "fraction", "constant_heads")}
                ends = {"drop": drop.mean, "low": drop.low, "high": drop.high}
                rows.append({**named, **ends, "verdict": verdict, "reason": reason})
    return pandas.DataFrame(rows)
