"""A study's numbers beside the paper's, which a CSV file holds."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pandas

from papa.errors import DataError
from papa.reporting.tables import row_axes, shared_labels
from papa.reporting.wording import (
    NOTHING,
    Row,
    WrittenTable,
    axis_labels,
    fraction_label,
    mean_label,
    nats_label,
    number_label,
    percent_label,
    score_label,
    with_dagger,
)
from papa.scores.intervals import relative_drop
from papa.scores.summary import distinct_results
from papa.spec.columns import LINE
from papa.spec.orders import Cell
from papa.spec.task import LOSS

REFERENCE_COLUMNS = (*LINE, "fraction", "score", "source")


def read_reference(path: Path) -> pandas.DataFrame:
    """Read the paper's numbers for one study: a CSV with the columns ``REFERENCE_COLUMNS``, of
    which ``source`` says where the paper has the number; lines that begin with ``#`` are notes.
    """
    # An encoder may be called "1", and a source be a page.
    text_columns = {"encoder": str, "source": str}
    try:
        # Not read_csv's ``comment``, which drops the rest of a line from any "#" in it.
        lines = path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
        rows = io.StringIO("".join(line for line in lines if not line.startswith("#")))
        reference = pandas.read_csv(rows, dtype=text_columns)[[*REFERENCE_COLUMNS]]
        reference = reference.astype({"fraction": float, "score": float})
        return reference.dropna(subset=["fraction", "score"])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} cannot be read as the paper's numbers ({error}): give a CSV file with "
            f"the columns {', '.join(REFERENCE_COLUMNS)}, one row per number"
        ) from None


def comparison_table(summary: pandas.DataFrame, reference: pandas.DataFrame) -> WrittenTable:
    """Return the study's numbers beside the paper's, for results that the paper has; cells that
    share a result (``papa.spec.orders``) have one row. Encoders match by the last component of
    their names.
    """
    paper_scores = {_match_key(row): row["score"] for row in reference.to_dict("records")}
    rows = []
    results = distinct_results(summary)
    for row in results.to_dict("records"):
        score = paper_scores.get(_match_key(row))
        if score is None:
            continue
        original = paper_scores.get(_match_key({**row, "fraction": 1.0}), math.nan)
        rows.append(
            {
                **axis_labels({**row, **shared_labels(row)}, row_axes(summary)),
                "Input-dependent": fraction_label(row["fraction"]),
                "Score": mean_label(row),
                "Paper's score": score_label(score),
                "Difference": number_label(row["mean"] - score, "+z.3f"),
                **_drops_compared(row, original, score),
            }
        )
    note = (
        f"The paper has a number for {len(rows)} of the study's {len(results)} results. "
        "Differences: the study's number less the paper's."
    )
    return WrittenTable("Beside the paper", rows, note)


def _drops_compared(row: Row, original: float, score: float) -> dict[str, str]:
    """Return a row's drop beside that of the paper's scores; of a loss in nats."""
    if row["metric"] == LOSS:
        return {
            "Drop": with_dagger(nats_label(row["difference"]), row),
            "Paper's drop": nats_label(original - score),
            "Difference (points)": NOTHING,
        }
    drop = relative_drop(original, score)
    return {
        "Drop": with_dagger(percent_label(row["relative_drop"]), row),
        "Paper's drop": percent_label(drop),
        "Difference (points)": number_label(100 * (row["relative_drop"] - drop), "+z.1f"),
    }


def _match_key(row: Row) -> Cell:
    """Return the result of a row, with the last component of the encoder's name."""
    cell = Cell.from_row(row).canonical()
    return replace(cell, encoder=cell.encoder.rstrip("/").rsplit("/", 1)[-1].lower())
