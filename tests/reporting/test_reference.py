"""A study's numbers beside the paper's."""

from pathlib import Path

import pandas
import pytest

from papa.errors import DataError
from papa.reporting.reference import REFERENCE_COLUMNS, comparison_table, read_reference
from papa.scores.summary import summarise
from tests.reporting.studies import results

HEADER = ",".join(REFERENCE_COLUMNS)


def reference(tmp_path: Path, *rows: str) -> pandas.DataFrame:
    path = tmp_path / "study.csv"
    path.write_text("\n".join(["# A note.", HEADER, *(f"{row},made up" for row in rows)]))
    return read_reference(path)


def test_ours_stand_beside_the_papers_with_the_difference(tmp_path: Path) -> None:
    ours = "somebody/all-minilm-l6-v2,reviews,average,lambda"
    another = "somebody/another,reviews,average,lambda,1,0.9"
    paper = reference(tmp_path, f"{ours},1,0.5", f"{ours},0,0.45", another, f"{ours},0.25,0.4")
    summary = summarise(results()).set_index("fraction")
    summary.loc[1.0, ["mean", "low", "high"]] = (0.61, 0.60, 0.62)
    summary.loc[0.0, ["mean", "low", "high", "relative_drop"]] = (0.40, 0.38, 0.42, 0.344)
    table = comparison_table(summary.reset_index(), paper)
    assert table.rows == [
        ["–", "1", "0.610 ± 0.010", "0.500", "+0.110", "0.0 %", "0.0 %", "+0.0"],
        ["average", "0", "0.400 ± 0.020", "0.450", "-0.050", "34.4 %", "10.0 %", "+24.4"],
    ]


def test_notes_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    rows = [
        "# A note.",
        HEADER,
        "a,cola,average,lambda,1,0.5,Table 3 #2",
        "# Another, later.",
    ]
    path.write_text("\n".join(rows))
    assert read_reference(path)["source"].tolist() == ["Table 3 #2"]


def test_a_result_that_cells_share_is_compared_once(tmp_path: Path) -> None:
    paper = reference(
        tmp_path,
        "a,cola,average,lambda,1,0.5",
        "a,cola,average:mnli,lambda,0,0.4",
        "a,cola,trained:average,random,0.5,0.45",
        "a,another-task,average:mnli,lambda,0,0.1",
    )
    orders = ("lambda", "random")
    kinds = ("average:mnli", "trained:average")
    frame = results(("a",), (("cola", "matthews"),), kinds, orders, (1.0, 0.5, 0.0))
    table = comparison_table(summarise(frame), paper)
    assert [row[:3] for row in table.rows] == [
        ["–", "–", "1"],
        ["average:mnli", "–", "0"],
        ["trained:average", "random", "1/2"],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HEADER}\na,b,average,lambda,1,about 0.5,x", "about 0.5"),
        ("encoder,task\n", "constants"),
        ("", "study"),
        (None, r"study\.csv"),
    ],
)
def test_what_is_no_reference_is_refused(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "study.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=expected):
        read_reference(path)
