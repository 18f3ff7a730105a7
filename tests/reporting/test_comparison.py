"""Several studies in one table and one figure."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import pandas
import pytest
from rich.console import Console

from papa.reporting.comparison import compared, write_comparison
from papa.reporting.figures.scores import scores_figure
from papa.reporting.summary import summarise
from papa.reporting.tables import summary_table
from tests.reporting.studies import results

MODELS = ("all-MiniLM-L6-v2", "an encoder with a rather long name")


def test_each_study_keeps_its_numbers_and_its_own_original_score() -> None:
    first = results(models=MODELS)
    second = first.assign(score=2 * first["score"])
    table = compared({"first": first, "second": second})
    for name, frame in (("first", first), ("second", second)):
        mine = table[table["study"] == name].drop(columns="study").reset_index(drop=True)
        pandas.testing.assert_frame_equal(mine, summarise(frame))
    one, two = (table[table["study"] == name] for name in ("first", "second"))
    assert one["relative_drop"].tolist() == pytest.approx(two["relative_drop"].tolist())
    assert not one["mean"].isin(two["mean"]).any()


def test_what_studies_share_stands_together() -> None:
    table = compared({"a": results(models=MODELS), "b": results(models=MODELS[::-1])})
    lines = table[["model", "study"]].drop_duplicates().itertuples(index=False, name=None)
    assert list(lines) == [(model, study) for model in MODELS for study in "ab"]


def test_five_fractions_of_two_studies_fit_a_terminal() -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(summary_table(compared({"first": results(), "second": results()})))
    text = console.file.getvalue()
    assert all(told in text for told in ("Study", "first", "second", "1/16", "Drop"))
    assert "…" not in text


def test_the_legend_names_every_line_and_stays_inside() -> None:
    orders = ("lambda", "random")
    reviews = results(models=MODELS, orders=orders)
    questions = results(models=MODELS, orders=orders, tasks=(("questions", "f1"),))
    svg = scores_figure(compared({"first": reviews, "second": questions})).svg()
    root = ElementTree.fromstring(svg)
    labels = [one for one in root.iter() if "role-legend-label" in one.get("class", "")]
    dashes = [f"{order}, {study}" for study in ("first", "second") for order in ("λ ascending", "random")]
    texts = {text.text for one in labels for text in one.iter() if text.text}
    assert texts == {*MODELS, *dashes}
    assert "…" not in svg


@pytest.mark.parametrize("models", [MODELS, ("a" * 96, "b" * 96, "c" * 96)])
def test_a_legend_makes_no_figure_wider(models: tuple[str, ...]) -> None:
    """Long names stand below each other."""
    frame = results(models=models, tasks=(("cola", "matthews"), ("sst2", "accuracy")))
    short = results(models=("a", "b"), tasks=(("cola", "matthews"), ("sst2", "accuracy")))
    widths = [
        float(ElementTree.fromstring(scores_figure(summarise(one)).svg()).attrib["width"]) for one in (short, frame)
    ]
    assert widths[1] == pytest.approx(widths[0], abs=2)


def test_a_comparison_is_written_as_table_and_figure(tmp_path: Path) -> None:
    table = compared({"first": results(), "second": results()})
    write_comparison(tmp_path / "to", table)
    assert {one.name for one in (tmp_path / "to").iterdir()} == {"compare.csv", "compare.png", "compare.svg"}
    assert (tmp_path / "to" / "compare.svg").read_text() == scores_figure(table).svg()
