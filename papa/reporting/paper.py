"""The paper's own numbers, compared with ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas

from papa.errors import DataError
from papa.reporting.wording import (
    NOTHING,
    fraction_label,
    mean_label,
    names_of,
    percent_label,
    score_label,
    varying,
)
from papa.reporting.written import WrittenTable
from papa.scores.intervals import relative_drop
from papa.scores.summary import LINE, distinct_results
from papa.spec.orders import Cell

REFERENCE_COLUMNS = (*LINE, "fraction", "score", "source")


def read_reference(path: Path) -> pandas.DataFrame:
    """The paper's numbers for one study: a CSV with the columns ``REFERENCE_COLUMNS``, of which
    ``source`` says where the paper gives the number; lines that begin with ``#`` are notes.
    """
    texts, numbers = dict.fromkeys(("encoder", "source"), str), ("fraction", "score")
    try:
        reference = pandas.read_csv(path, comment="#", dtype=texts)[[*REFERENCE_COLUMNS]]
        return reference.astype(dict.fromkeys(numbers, float)).dropna(subset=numbers)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} is no table of the paper's numbers ({error}): give a CSV file with columns "
            f"{', '.join(REFERENCE_COLUMNS)}, a row for each number that the paper gives"
        ) from None


def comparison_table(summary: pandas.DataFrame, reference: pandas.DataFrame) -> WrittenTable:
    """The study's numbers beside the paper's, where it gives one; cells that share a result
    (``papa.spec.orders``) have one row. Encoders match by the last part of their names.
    """
    scores = {_matched_by(row): row["score"] for row in reference.to_dict("records")}
    rows, ours = [], distinct_results(summary)
    for row in ours.to_dict("records"):
        if (score := scores.get(_matched_by(row))) is None:
            continue
        drop = relative_drop(scores.get(_matched_by(row, fraction=1.0), math.nan), score)
        result = Cell.of(row).result()
        shared = {"constants": result.constants or NOTHING, "order": result.order or NOTHING}
        rows.append(
            {
                **names_of({**row, **shared}, varying(summary)),
                "Input-dependent": fraction_label(row["fraction"]),
                "Score": mean_label(row),
                "Paper's score": score_label(score),
                "Difference": _signed(row["mean"] - score, ".3f"),
                "Drop": percent_label(row["relative_drop"]),
                "Paper's drop": percent_label(drop),
                "Difference (points)": _signed(100 * (row["relative_drop"] - drop), ".1f"),
            }
        )
    note = (
        f"The paper gives a number for {len(rows)} of the study's {len(ours)} results. "
        "Differences: ours less the paper's."
    )
    return WrittenTable.of("Beside the paper", rows, note)


def _matched_by(row: Mapping[str, Any], **changes: Any) -> Cell:
    """What the paper's rows and ours are matched by: the result, with the last part of the
    encoder's name.
    """
    result = replace(Cell.of(row), **changes).result()
    return replace(result, encoder=result.encoder.rstrip("/").rsplit("/", 1)[-1].lower())


def _signed(difference: float, form: str) -> str:
    return NOTHING if math.isnan(difference) else format(difference, f"+z{form}")
