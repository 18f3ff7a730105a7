"""Several studies in one table and one figure."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pandas
import pytest

from papa.reporting.figures import scores_figure
from papa.reporting.tables import score_tables
from papa.scores.summary import compared, summarise
from tests.reporting.studies import ROWS, results

MODELS = ("all-MiniLM-L6-v2", "an encoder with a rather long name")


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


def test_a_study_differs_from_the_first_by_an_interval() -> None:
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


def test_studies_on_other_rows_are_contrasted_and_other_metrics_are_not() -> None:
    first, fewer = results(), results()
    for column in ("influence", "one_answer_influence", "word_embeddings_influence"):
        fewer[column] = [value[:1000] * 4 for value in fewer[column]]
    apart = compared({"a": first, "b": fewer})
    paired = compared({"a": first, "b": results()})
    width = [
        (table["contrast_high"] - table["contrast_low"]).dropna().min() for table in (apart, paired)
    ]
    assert width[0] > 2 * width[1] > 0
    other = compared({"a": first, "b": first.assign(metric="f1")})
    assert other["contrast"].isna().all()
    assert "Contrasts" not in [table.heading for table in score_tables(other)]


def test_the_legend_names_every_line_and_stays_inside() -> None:
    orders = ("lambda", "random")
    reviews = results(encoders=MODELS, orders=orders)
    questions = results(encoders=MODELS, orders=orders, tasks=(("questions", "f1"),))
    svg = scores_figure(compared({"first": reviews, "second": questions})).svg()
    root = ElementTree.fromstring(svg)
    labels = [element for element in root.iter() if "role-legend-label" in element.get("class", "")]
    dashes = [
        f"{order}, {study}" for study in ("first", "second") for order in ("λ ascending", "random")
    ]
    texts = {text.text for element in labels for text in element.iter() if text.text}
    assert texts == {*MODELS, *dashes}
    assert "…" not in svg


@pytest.mark.parametrize("encoders", [MODELS, ("a" * 96, "b" * 96, "c" * 96)])
def test_a_legend_makes_no_figure_wider(encoders: tuple[str, ...]) -> None:
    """Long names stand below each other."""
    frame = results(encoders=encoders, tasks=(("cola", "matthews"), ("sst2", "accuracy")))
    short = results(encoders=("a", "b"), tasks=(("cola", "matthews"), ("sst2", "accuracy")))
    widths = [
        float(ElementTree.fromstring(scores_figure(summarise(drawn)).svg()).attrib["width"])
        for drawn in (short, frame)
    ]
    assert widths[1] == pytest.approx(widths[0], abs=2)
