"""The paper's numbers beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.errors import DataError
from papa.reporting.tables import REFERENCE_COLUMNS, comparison_table, read_reference
from papa.scores.summary import summarise
from tests.reporting.studies import results

HEADER = ",".join(REFERENCE_COLUMNS)


def reference(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "study.csv"
    path.write_text("\n".join(["# A note.", HEADER, *rows]) + "\n")
    return path


def test_ours_stand_beside_the_papers_with_the_difference(tmp_path: Path) -> None:
    path = reference(
        tmp_path,
        "somebody/all-minilm-l6-v2,reviews,average,lambda,1,0.5,made up",
        "somebody/all-minilm-l6-v2,reviews,average,lambda,0,0.45,made up",
        "somebody/another,reviews,average,lambda,1,0.9,made up",
        "somebody/all-minilm-l6-v2,reviews,average,lambda,0.25,0.4,made up",
    )
    summary = summarise(results()).set_index("fraction")
    summary.loc[1.0, ["mean", "low", "high"]] = (0.61, 0.60, 0.62)
    summary.loc[0.0, ["mean", "low", "high", "relative_drop"]] = (0.40, 0.38, 0.42, 0.344)
    known = summary.reset_index(), read_reference(path)
    table = comparison_table(*known)
    assert table.headings == [
        "Input-dependent", "Score", "Paper's score", "Difference", "Drop", "Paper's drop",
        "Difference (points)",
    ]  # fmt: skip
    assert table.rows == [
        ["1", "0.610 ± 0.010", "0.500", "+0.110", "0.0 %", "0.0 %", "+0.0"],
        ["0", "0.400 ± 0.020", "0.450", "-0.050", "34.4 %", "10.0 %", "+24.4"],
    ]
    assert table.note.startswith("The paper gives a number for 2 of the study's 5 results.")


def test_a_result_that_cells_share_is_compared_once(tmp_path: Path) -> None:
    path = reference(
        tmp_path,
        "a,cola,average,lambda,1,0.5,made up",
        "a,cola,average:mnli,lambda,0,0.4,made up",
        "a,cola,trained:average,random,0.5,0.45,made up",
        "a,another-task,average:mnli,lambda,0,0.1,made up",
    )
    orders, kinds = ("lambda", "random"), ("average:mnli", "trained:average")
    frame = results(("a",), (("cola", "matthews"),), kinds, orders, (1.0, 0.5, 0.0))
    known = summarise(frame), read_reference(path)
    table = comparison_table(*known)
    assert [row[:3] for row in table.rows] == [
        ["–", "–", "1"],
        ["average:mnli", "–", "0"],
        ["trained:average", "random", "1/2"],
    ]
    assert "for 3 of the study's 7 results" in table.note


def test_encoders_that_share_the_last_part_of_their_names_are_two(tmp_path: Path) -> None:
    path = reference(tmp_path, "bert,reviews,average,lambda,1,0.5,made up")
    known = summarise(results(("one/bert", "two/bert"))), read_reference(path)
    assert [row[0] for row in comparison_table(*known).rows] == ["one/bert", "two/bert"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEADER}\na,b,average,lambda,1,about 0.5,x", "about 0.5"),
        ("encoder,task\n", "constants.* not in index"),
        ("", "No columns"),
        (None, "No such file"),
    ],
)
def test_what_is_no_reference_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "study.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_reference(path)
