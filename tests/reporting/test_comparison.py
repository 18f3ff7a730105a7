"""Several studies in one table and one figure."""

from __future__ import annotations

import io

import pandas
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from papa.reporting.comparison import compared
from papa.reporting.figures import scores_figure
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
    figure = scores_figure(compared({"first": reviews, "second": questions}))
    renderer = FigureCanvasAgg(figure).get_renderer()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 2 * len(MODELS) * len(orders)
    assert legend.get_window_extent(renderer).width <= figure.bbox.width
    short = scores_figure(compared({"first": results(), "second": results()}))
    assert figure.get_figheight() > short.get_figheight(), "a long legend gets room of its own"
