"""Which heads may become constant within a drop of the score (paper, Sections 3.4 and 4.2;
docs/results.md).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import pandas

from papa.errors import SpecError
from papa.scores.drops import MaxDrop
from papa.scores.levels import CONFIDENCE, LEVEL
from papa.scores.summary import (
    distinct_fractions,
    inconclusive_clause,
    is_below_baseline,
    summarise,
)
from papa.spec.columns import LINE
from papa.spec.orders import Cell, Head
from papa.spec.task import LOSS

Verdict: TypeAlias = Literal["within", "beyond", "undecided"]
_SHARE_COLUMNS = ("relative_drop", "drop_low", "drop_high")
"""The columns with a drop and the bounds of its interval."""
_NATS_COLUMNS = ("difference", "difference_low", "difference_high")
"""The same of a loss, whose drop is a difference in nats."""


def drops_of_all_lines(results: pandas.DataFrame) -> pandas.DataFrame:
    """Return the summary with intervals of drops that are wide enough for a statement on all lines.

    Within a line, numbers of heads are tested in a fixed order, the fewest first, until one is not
    within the drop; so each line needs one level for all of its numbers (Maurer et al. 1995).
    Lines share 5 % by Bonferroni: with probability 95 %, no line allows a number of heads whose
    drop is larger. One side of a 95 % interval errs in 2.5 %, so up to two lines keep theirs.
    """
    lines = len(results[LINE].drop_duplicates())
    return summarise(results, max(CONFIDENCE, 1 - 2 * LEVEL / lines))


def heads_within(
    summary: pandas.DataFrame,
    constant_heads: Mapping[Cell, Sequence[Head] | None],
    max_drop: MaxDrop,
) -> pandas.DataFrame:
    """Return for each number of constant heads whether the drop of the score stays within
    ``max_drop``.

    Args:
        summary: Rows of ``drops_of_all_lines``, or of ``summarise`` for a single line.
        constant_heads: The constant heads of each cell; None if seeds differ.
        max_drop: The largest drop.

    Raises:
        SpecError: The unit of the drop applies to none of the metrics.

    Returns:
        A row for every number of constant heads, in each line the fewest first: the metric, the
        drop (a share, or the nats of a loss), the verdict, the reason why there is none ("" if
        there is one), and ``heads``, the ``constant_heads`` of the cell, None if seeds differ.
    """
    mismatches = {metric: max_drop.mismatch(metric) for metric in summary["metric"].unique()}
    if all(mismatches.values()):
        task, metric = summary[["task", "metric"]].iloc[0]
        raise SpecError(f"task '{task}' is scored by {metric}: {mismatches[metric]}")
    rows: list[dict[str, object]] = []
    for _, line in distinct_fractions(summary).groupby(LINE, sort=False):
        rows += _verdicts_of_line(line, constant_heads, max_drop)
    # pandas leaves out the middle of wide frames: the last columns are what the reader came for.
    columns = ["fraction", "heads", "reason", "drop", "low", "high", "constant_heads", "verdict"]
    return pandas.DataFrame(rows, columns=[*LINE, "metric", *columns])


def _verdicts_of_line(
    line: pandas.DataFrame, constant_heads: Mapping[Cell, Sequence[Head] | None], max_drop: MaxDrop
) -> list[dict[str, object]]:
    """Return the rows of ``heads_within`` for the cells of one line, the fewest heads first."""
    metric = line["metric"].iloc[0]
    reason = max_drop.mismatch(metric) or _doubt(line)
    limit = max_drop.limit(metric) or 0.0
    drop, low, high = _NATS_COLUMNS if metric == LOSS else _SHARE_COLUMNS
    smaller_are_within = True
    rows: list[dict[str, object]] = []
    constant = line[line["constant_heads"] > 0].sort_values("constant_heads")
    for row in constant.to_dict("records"):
        verdict: Verdict = "undecided"
        if not reason:
            verdict = verdict_on(row[low], row[high], limit, smaller_are_within)
        # A cell without an interval, as no example changed, does not stop larger cells.
        smaller_are_within = verdict == "within" or (smaller_are_within and math.isnan(row[high]))
        rows.append(
            {
                **{name: row[name] for name in (*LINE, "metric", "fraction", "constant_heads")},
                "drop": row[drop],
                "low": row[low],
                "high": row[high],
                "verdict": verdict,
                "reason": reason,
                "heads": constant_heads.get(Cell.from_row(row)),
            }
        )
    return rows


def verdict_on(low: float, high: float, max_drop: float, smaller_are_within: bool) -> Verdict:
    """Return the verdict on a drop's interval, given whether every smaller number of heads is
    within ``max_drop``.
    """
    if high <= max_drop and smaller_are_within:
        return "within"
    return "beyond" if low > max_drop else "undecided"


def _doubt(line: pandas.DataFrame) -> str:
    """Return why the drops of a line allow no verdict; "" if they do."""
    first = line.iloc[0]
    if not (line["fraction"] == 1).any():
        return "it has no fraction 1"
    if first["seeds"] == 1:
        return "one seed has no interval: give the study more seeds"
    if is_below_baseline(first):
        return f"{inconclusive_clause(first)}; more rows help, or for a probe more epochs"
    if first["reason"]:
        return inconclusive_clause(first)
    if first["metric"] != LOSS and line["relative_drop"].isna().any():
        return "the original's score is near 0, and a share of it says nothing"
    return ""
