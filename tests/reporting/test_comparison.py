"""Several studies in one table and one figure; the paper's numbers beside ours."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pandas
import pytest

from papa.errors import DataError
from papa.reporting.figures import scores_figure
from papa.reporting.tables import (
    REFERENCE_COLUMNS,
    comparison_table,
    read_reference,
    score_tables,
)
from papa.scores.summary import compared, summarise
from tests.reporting.studies import ROWS, results

MODELS = ("all-MiniLM-L6-v2", "an encoder with a rather long name")
HEADER = ",".join(REFERENCE_COLUMNS)


def test_each_study_keeps_its_numbers_and_its_own_original_score() -> None:
    first = results(encoders=MODELS)
    second = first.assign(score=2 * first["score"])
    table = compared({"first": first, "second": second})
    for name, frame in (("first", first), ("second", second)):
        mine = table[table["study"] == name].reset_index(drop=True)
        contrasts = [column for column in mine if column.startswith("contrast")]
        expected = summarise(frame).drop(columns=contrasts)
        pandas.testing.assert_frame_equal(mine.drop(columns=["study", *contrasts]), expected)
        drops = table.loc[table["study"] == "first", "relative_drop"]
        assert mine["relative_drop"].tolist() == pytest.approx(drops.tolist())


def test_a_study_differs_from_the_first_by_an_interval_unless_by_metric() -> None:
    first, other = results(), results(seeds=(3, 4, 5))
    other = other.assign(
        score=first["score"] - 0.05 + 0.002 * (other["seed"] - 4), seed=other["seed"]
    )
    table = compared({"first": first, "other": other}).set_index(["study", "fraction"])
    assert table.loc["first", "contrast"].isna().all(), "itself"
    assert set(table.loc["other", "contrast_with"]) == {"first"}
    over_seeds, over_examples = 4.30265 * 0.002 / math.sqrt(3), 3.84 / ROWS
    paired = math.hypot(over_seeds, over_examples)
    for cell in table.loc["other"].to_dict("records"):
        assert cell["contrast"] == pytest.approx(0.05)
        half = (cell["contrast_high"] - cell["contrast_low"]) / 2
        assert half == pytest.approx(paired, rel=1e-3)
    *_, contrasts = score_tables(compared({"first": first, "other": other}))
    assert (contrasts.heading, contrasts.rows[0][0]) == ("Contrasts", "first − other")
    metric = compared({"a": first, "b": first.assign(metric="f1")})
    assert metric["contrast"].isna().all()
    assert "Contrasts" not in [table.heading for table in score_tables(metric)]


def test_the_legend_names_every_line_and_stays_inside() -> None:
    orders = ("lambda", "random")
    reviews = results(encoders=MODELS, orders=orders)
    questions = results(encoders=MODELS, orders=orders, tasks=(("questions", "f1"),))
    svg = scores_figure(compared({"first": reviews, "second": questions})).svg()
    root = ElementTree.fromstring(svg)
    labels = [element for element in root.iter() if "role-legend-label" in element.get("class", "")]
    texts = {text.text for element in labels for text in element.iter() if text.text}
    named = [
        f"{order}, {one}" for one in ("first", "second") for order in ("λ ascending", "random")
    ]
    assert texts == {*MODELS, *named}
    assert "…" not in svg


def test_a_legend_makes_no_figure_wider() -> None:
    """Long names stand below each other."""
    tasks = (("cola", "matthews"), ("sst2", "accuracy"))
    short, *widths = (
        float(ElementTree.fromstring(scores_figure(drawn).svg()).attrib["width"])
        for names in (("a", "b"), MODELS, ("a" * 96, "b" * 96, "c" * 96))
        for drawn in [summarise(results(encoders=names, tasks=tasks))]
    )
    assert widths == pytest.approx([short, short], abs=2)


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
    paper = reference(
        tmp_path,
        "a,cola,average,lambda,1,0.5",
        "a,cola,average:mnli,lambda,0,0.4",
        "a,cola,trained:average,random,0.5,0.45",
        "a,another-task,average:mnli,lambda,0,0.1",
    )
    orders, kinds = ("lambda", "random"), ("average:mnli", "trained:average")
    frame = results(("a",), (("cola", "matthews"),), kinds, orders, (1.0, 0.5, 0.0))
    table = comparison_table(summarise(frame), paper)
    assert [row[:3] for row in table.rows] == [
        ["–", "–", "1"],
        ["average:mnli", "–", "0"],
        ["trained:average", "random", "1/2"],
    ]
    assert "for 3 of the study's 7 results" in table.note


def test_encoders_that_share_the_last_part_of_their_names_are_two(tmp_path: Path) -> None:
    paper = reference(tmp_path, "bert,reviews,average,lambda,1,0.5")
    table = comparison_table(summarise(results(("one/bert", "two/bert"))), paper)
    assert [row[0] for row in table.rows] == ["one/bert", "two/bert"]


def test_what_is_no_reference_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    with pytest.raises(DataError, match="No such file"):
        read_reference(path)
    texts = {
        f"{HEADER}\na,b,average,lambda,1,about 0.5,x": "about 0.5",
        "encoder,task\n": "constants.* not in index",
        "": "No columns",
    }
    for text, words in texts.items():
        path.write_text(text)
        with pytest.raises(DataError, match=words):
            read_reference(path)
