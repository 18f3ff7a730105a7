"""The paper's own numbers, compared with ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from papa.spec.cells import Cell, Result

REFERENCE_COLUMNS = (*LINE, "fraction", "score", "source")


@dataclass(frozen=True)
class PaperReference:
    """The paper's results for one study, by ``REFERENCE_COLUMNS``; notes are statements that are no
    single score, such as an average over encoders.
    """

    scores: pandas.DataFrame
    notes: tuple[str, ...]


def read_reference(path: Path) -> PaperReference:
    """The paper's numbers for one study: a CSV with the columns ``REFERENCE_COLUMNS``, of which
    ``source`` says where the paper gives the number; lines that begin with ``#`` are the notes.
    """
    try:
        texts = dict.fromkeys(("encoder", "source"), str)
        reference = pandas.read_csv(path, comment="#", dtype=texts)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as CSV ({error}): give a file with columns "
            f"{', '.join(REFERENCE_COLUMNS)}"
        ) from None
    missing = [column for column in REFERENCE_COLUMNS if column not in reference]
    if missing:
        raise DataError(
            f"{path} has no column '{missing[0]}': add it (columns {', '.join(REFERENCE_COLUMNS)})"
        )
    for column in ("fraction", "score"):
        numbers = pandas.to_numeric(reference[column], errors="coerce")
        if numbers.isna().any():
            row = int(numbers.isna().to_numpy().argmax())
            raise DataError(
                f"{path}: '{reference[column].iloc[row]}' in column '{column}' is not a number: "
                "leave the row out where the paper gives none"
            )
        reference[column] = numbers.astype(float)
    lines = path.read_text().splitlines()
    notes = tuple(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    return PaperReference(scores=reference, notes=notes)


def beside_paper(summary: pandas.DataFrame, reference: pandas.DataFrame) -> pandas.DataFrame:
    """The summary with ``paper_score`` and ``paper_drop`` in the same cell, NaN where the paper
    gives none, and ours less these: ``score_difference`` and ``drop_difference``, of shares.

    A score of the paper serves every cell that shares the result (``papa.spec.cells``). Encoders
    match by the last part of their names. Cells that the study does not have are passed over.
    """
    scores = {_matched_by(row): row["score"] for row in reference.to_dict("records")}
    ours = summary.to_dict("records")
    paper_scores = [scores.get(_matched_by(row), math.nan) for row in ours]
    originals = [scores.get(_matched_by(row, fraction=1.0), math.nan) for row in ours]
    drops = [
        relative_drop(original, score)
        for original, score in zip(originals, paper_scores, strict=True)
    ]
    compared = summary.assign(paper_score=paper_scores, paper_drop=drops)
    return compared.assign(
        score_difference=compared["mean"] - compared["paper_score"],
        drop_difference=compared["relative_drop"] - compared["paper_drop"],
    )


def comparison_table(summary: pandas.DataFrame, reference: pandas.DataFrame) -> WrittenTable:
    """The study's numbers beside the paper's, where it gives one; cells that share a result have
    one row.
    """
    axes = varying(summary)
    compared = distinct_results(beside_paper(summary, reference))
    rows = []
    for row in compared.dropna(subset="paper_score").to_dict("records"):
        result = Cell.of(row).result()
        shared = {"constants": result.constants or NOTHING, "order": result.order or NOTHING}
        rows.append(
            {
                **names_of({**row, **shared}, axes),
                "Input-dependent": fraction_label(row["fraction"]),
                "Score": mean_label(row),
                "Paper's score": score_label(row["paper_score"]),
                "Difference": _signed(row["score_difference"], ".3f"),
                "Drop": percent_label(row["relative_drop"]),
                "Paper's drop": percent_label(row["paper_drop"]),
                "Difference (points)": _signed(100 * row["drop_difference"], ".1f"),
            }
        )
    note = _comparison_note(len(rows), len(compared))
    return WrittenTable.of("Beside the paper", rows, note)


def _comparison_note(known: int, total: int) -> str:
    if known == 0:
        return (
            f"None of the study's {total} results can be compared: the paper's numbers are of "
            "other cells."
        )
    rest = " The paper gives no number for the others." if known < total else ""
    return (
        f"{known} of the study's {total} results can be compared.{rest} Differences: ours less the "
        "paper's."
    )


def _matched_by(row: Mapping[str, Any], **changes: Any) -> Result:
    """What the paper's rows and ours are matched by: the result, with the last part of the
    encoder's name.
    """
    result = replace(Cell.of(row), **changes).result()
    return replace(result, encoder=result.encoder.rstrip("/").rsplit("/", 1)[-1].lower())


def _signed(difference: float, form: str) -> str:
    """A difference with its sign; zero has none."""
    if math.isnan(difference):
        return NOTHING
    written = format(difference, f"+{form}")
    return written if float(written) else written[1:]
