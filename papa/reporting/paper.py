"""The paper's own numbers, set beside ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pandas

from papa.errors import DataError
from papa.reporting.labels import axis_label, fraction_label, percent_label, score_label, varying
from papa.reporting.tables import HEADINGS

_KEYS = ["model", "task", "constants", "order", "fraction"]
REFERENCE_COLUMNS = (*_KEYS, "score", "source")


@dataclass(frozen=True)
class PaperReference:
    """What the paper says about one study.

    Attributes:
        points: the paper's scores; columns ``REFERENCE_COLUMNS``, possibly without rows.
        notes: statements that are no single score, such as an average over encoders.
    """

    points: pandas.DataFrame
    notes: tuple[str, ...]


def read_reference(path: Path) -> PaperReference:
    """The paper's numbers for one study.

    Args:
        path: CSV with the columns ``model, task, constants, order, fraction, score, source``; ``source``
            says where the paper gives the number. Lines that begin with ``#`` are the notes.

    Raises:
        DataError: the file is missing, lacks a column, or a fraction or score is not a number.
    """
    try:
        reference = pandas.read_csv(path, comment="#", dtype={"model": str, "source": str})
    except (OSError, UnicodeDecodeError, pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        raise DataError(
            f"{path} cannot be read as CSV ({error}): give a file with columns {', '.join(REFERENCE_COLUMNS)}"
        ) from None
    missing = [column for column in REFERENCE_COLUMNS if column not in reference]
    if missing:
        raise DataError(f"{path} has no column '{missing[0]}': add it (columns {', '.join(REFERENCE_COLUMNS)})")
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
    return PaperReference(points=reference, notes=notes)


def beside_paper(summary: pandas.DataFrame, points: pandas.DataFrame) -> pandas.DataFrame:
    """The summary with the paper's score and relative drop at the same point; NaN where the paper gives none.

    A point of the paper at fraction 1 serves every constants kind and order of its model and task, one at
    fraction 0 every order, as in the study itself. Models match by the last part of their names.

    Returns:
        The summary's columns with ``paper_score`` and ``paper_drop``.
    """
    scores: dict[tuple, float] = {}
    for point in points.to_dict("records"):
        scores[_point(point)] = point["score"]
    ours = summary.to_dict("records")
    paper_scores = [scores.get(_point(point), math.nan) for point in ours]
    originals = [scores.get(_point({**point, "fraction": 1.0}), math.nan) for point in ours]
    drops = [
        (original - score) / abs(original) if original else math.nan
        for original, score in zip(originals, paper_scores, strict=True)
    ]
    return summary.assign(paper_score=paper_scores, paper_drop=drops)


def comparison_rows(summary: pandas.DataFrame, points: pandas.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the table that sets the study's numbers beside the paper's."""
    axes = varying(summary)
    headings = [HEADINGS[axis] for axis in axes]
    rows = []
    for point in beside_paper(summary, points).to_dict("records"):
        rows.append(
            [
                *(axis_label(axis, point[axis]) for axis in axes),
                fraction_label(point["fraction"]),
                score_label(point["mean"], point["low"], point["high"]),
                score_label(point["paper_score"]),
                percent_label(point["relative_drop"]),
                percent_label(point["paper_drop"]),
            ]
        )
    return [*headings, "Own attention", "Score", "Paper's score", "Drop", "Paper's drop"], rows


def _point(point: dict) -> tuple:
    fraction = round(float(point["fraction"]), 6)
    model = str(point["model"]).rstrip("/").rsplit("/", 1)[-1].lower()
    constants = point["constants"] if fraction < 1 else None
    order = point["order"] if 0 < fraction < 1 else None
    return model, point["task"], constants, order, fraction
