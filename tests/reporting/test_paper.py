"""The paper's numbers beside ours."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from papa.errors import DataError
from papa.reporting.paper import REFERENCE_COLUMNS, beside_paper, comparison_rows, read_reference
from papa.reporting.summary import summarise
from tests.reporting.studies import results

STUDIES = Path(__file__).resolve().parents[2] / "studies"
HEADER = ",".join(REFERENCE_COLUMNS)


def reference(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "study.csv"
    path.write_text("\n".join(["# A note.", HEADER, *rows]) + "\n")
    return path


def test_points_meet_whatever_constants_or_order_cannot_change(tmp_path: Path) -> None:
    path = reference(
        tmp_path,
        "google-bert/bert-base-uncased,cola,average,lambda,1,0.5,made up",
        "google-bert/bert-base-uncased,cola,zeros,lambda,0,0.4,made up",
        "google-bert/bert-base-uncased,cola,zeros,lambda,0.5,0.45,made up",
    )
    frame = results(
        ("bert-base-uncased",),
        (("cola", "matthews"),),
        ("average", "zeros"),
        ("lambda", "random"),
        (1.0, 0.5, 0.0),
    )
    both = beside_paper(summarise(frame), read_reference(path).points)
    found = both.set_index(["constants", "order", "fraction"])[["paper_score", "paper_drop"]]
    for constants in ("average", "zeros"):
        for order in ("lambda", "random"):
            assert found.loc[(constants, order, 1.0), "paper_score"] == 0.5
    assert found.loc[("zeros", "random", 0.0), "paper_drop"] == pytest.approx(0.2)
    assert math.isnan(found.loc[("average", "lambda", 0.0), "paper_score"])
    assert found.loc[("zeros", "lambda", 0.5), "paper_score"] == 0.45
    assert math.isnan(found.loc[("zeros", "random", 0.5), "paper_score"])


def test_a_number_that_the_paper_does_not_give_is_a_dash(tmp_path: Path) -> None:
    path = reference(tmp_path, "all-MiniLM-L6-v2,reviews,average,lambda,1,0.5,made up")
    headings, rows = comparison_rows(summarise(results()), read_reference(path).points)
    column = headings.index("Paper's score")
    assert [row[column] for row in rows] == ["0.500", "–", "–", "–", "–"]


def test_notes_are_the_comment_lines(tmp_path: Path) -> None:
    assert read_reference(reference(tmp_path)).notes == ("A note.",)


def test_a_score_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'about 0.5' in column 'score' is not a number"):
        read_reference(reference(tmp_path, "a,b,average,lambda,1,about 0.5,made up"))


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    path.write_text("model,task\n")
    with pytest.raises(DataError, match="no column 'constants'"):
        read_reference(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_reference(tmp_path / "none.csv")


def test_every_paper_study_has_a_reference_that_reads() -> None:
    studies = sorted((STUDIES / "paper").glob("*.yaml"))
    assert studies
    for study in studies:
        assert read_reference(study.with_suffix(".csv")).notes
