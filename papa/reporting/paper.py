"""The paper's own numbers, compared with ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pandas

from papa.errors import DataError
from papa.reporting.tables import HEADINGS
from papa.reporting.wording import NOTHING, axis_label, fraction_label, percent_label, score_label, varying
from papa.scores.intervals import relative_drop

_KEYS = ["model", "task", "constants", "order", "fraction"]
REFERENCE_COLUMNS = (*_KEYS, "score", "source")


@dataclass(frozen=True)
class PaperReference:
    """The paper's results for one study.

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
    fraction 0 every order, as in the study itself. Models match by the last part of their names. Points that
    the study does not have are ignored.

    Returns:
        The summary's columns with ``paper_score``, ``paper_drop``, and ours less the paper's:
        ``score_difference`` and ``drop_difference``, a difference of shares.
    """
    scores: dict[tuple, float] = {}
    for point in points.to_dict("records"):
        scores[_comparison_key(point)] = point["score"]
    ours = summary.to_dict("records")
    paper_scores = [scores.get(_comparison_key(point), math.nan) for point in ours]
    originals = [scores.get(_comparison_key({**point, "fraction": 1.0}), math.nan) for point in ours]
    drops = [relative_drop(original, score) for original, score in zip(originals, paper_scores, strict=True)]
    compared = summary.assign(paper_score=paper_scores, paper_drop=drops)
    return compared.assign(
        score_difference=compared["mean"] - compared["paper_score"],
        drop_difference=compared["relative_drop"] - compared["paper_drop"],
    )


def comparison_rows(summary: pandas.DataFrame, points: pandas.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the table that compares the study's numbers with the paper's, where it gives one.

    A point that several lines of the study share has one row, as ``comparison_note`` counts it.
    """
    axes = varying(summary)
    rows = []
    for point in _distinct(beside_paper(summary, points).dropna(subset="paper_score")).to_dict("records"):
        coordinates = _coordinates(point)
        rows.append(
            [
                *(axis_label(axis, coordinates[axis]) if coordinates[axis] else NOTHING for axis in axes),
                fraction_label(point["fraction"]),
                score_label(point["mean"], point["low"], point["high"]),
                score_label(point["paper_score"]),
                _signed(point["score_difference"], ".3f"),
                percent_label(point["relative_drop"]),
                percent_label(point["paper_drop"]),
                _signed(100 * point["drop_difference"], ".1f"),
            ]
        )
    headings = [HEADINGS[axis] for axis in axes]
    numbers = ["Own attention", "Score", "Paper's score", "Difference", "Drop", "Paper's drop", "Difference (points)"]
    return [*headings, *numbers], rows


def comparison_note(summary: pandas.DataFrame, points: pandas.DataFrame) -> str:
    """How many of the study's points the paper gives a score for, in a sentence."""
    compared = beside_paper(summary, points)
    known = len(_distinct(compared.dropna(subset="paper_score")))
    total = len(_distinct(compared))
    if known == 0:
        return f"None of the study's {total} points can be compared: the paper's numbers are of other points."
    rest = " The paper gives no number for the others." if known < total else ""
    return f"{known} of the study's {total} points can be compared.{rest} Differences: ours less the paper's."


def _distinct(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Each point once, however many combinations of constants and orders share it."""
    coordinates = [tuple(_coordinates(point).values()) for point in summary.to_dict("records")]
    return summary[~pandas.Series(coordinates, index=summary.index, dtype=object).duplicated()]


def _coordinates(point: dict) -> dict:
    """The point's axes; None where one changes nothing: both at fraction 1, the order at fraction 0."""
    fraction = round(float(point["fraction"]), 6)
    return {
        "model": str(point["model"]),
        "task": point["task"],
        "constants": point["constants"] if fraction < 1 else None,
        "order": point["order"] if 0 < fraction < 1 else None,
        "fraction": fraction,
    }


def _comparison_key(point: dict) -> tuple:
    """The coordinates, with the last part of the model's name."""
    coordinates = _coordinates(point)
    return (coordinates.pop("model").rstrip("/").rsplit("/", 1)[-1].lower(), *coordinates.values())


def _signed(difference: float, form: str) -> str:
    """A difference with its sign; zero has none."""
    if math.isnan(difference):
        return NOTHING
    written = format(difference, f"+{form}")
    return written if float(written) else written[1:]
