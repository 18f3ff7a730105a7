"""How much text does an average need: scores by averages over few rows, beside that over all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas

from papa.reporting.tables import HEADINGS, WrittenTable
from papa.reporting.wording import axis_label, percent_label, score_label, varying
from papa.spec import StudySpec

AMOUNTS_NOTE = (
    "Averages over samples of the training text, with the fewest heads input-dependent: the score, "
    "± 95 % interval over seeds and examples, and the share of the entries that validation rows "
    "read and the average never saw. A smaller sample is part of a larger one."
)
_AXES = ("encoder", "task", "order")


def amounts(
    study: StudySpec,
    results: pandas.DataFrame,
    summary: pandas.DataFrame,
    corpora: Mapping[str, Mapping[str, Any]],
) -> pandas.DataFrame | None:
    """The cells of averages over some rows, and of that over all rows where the study has it.

    Args:
        study: its constants say over how many rows.
        results: a row for every cell and seed.
        summary: of them.
        corpora: metadata of the tokenised corpora, by task: how many training rows there are.

    Returns:
        Rows of the summary at the lowest fraction, with ``rows`` and ``unseen_share``, fewest rows
        first; None where no constants are of some rows.
    """
    rows = {constants.label: constants.rows for constants in study.constants if constants.rows}
    lowest = summary["fraction"].min()
    if not rows or lowest == 1:
        return None
    cells = summary[summary["constants"].isin([*rows, "average"]) & (summary["fraction"] == lowest)]
    whole = {task: found.get("rows", {}).get("train") for task, found in corpora.items()}
    counts = [
        rows.get(cell["constants"]) or whole.get(cell["task"]) for cell in cells.to_dict("records")
    ]
    keys = ["encoder", "task", "constants", "order", "fraction"]
    unseen = results.groupby(keys, sort=False)["unseen_share"].first().rename("unseen_share")
    found = cells.assign(rows=counts).merge(unseen.reset_index(), on=keys)
    return found.dropna(subset="rows").sort_values("rows", kind="stable").reset_index(drop=True)


def amounts_table(found: pandas.DataFrame) -> WrittenTable:
    """A row for every average, by encoder and task."""
    axes = varying(found, _AXES)
    return WrittenTable(
        "Averages over little text",
        [*(HEADINGS[axis] for axis in axes), "Rows", "Score", "Entries never seen"],
        [
            [
                *(axis_label(axis, row[axis]) for axis in axes),
                f"{row['rows']:,.0f}",
                score_label(row["mean"], row["low"], row["high"]),
                percent_label(row["unseen_share"]),
            ]
            for _, line in found.groupby(list(_AXES), sort=False)
            for row in line.to_dict("records")
        ],
    )
