"""The summary's numbers and how they are written."""

from __future__ import annotations

import io
import math

import numpy
import pandas
import pytest
from rich.console import Console
from scipy import stats

from papa.reporting.tables import SUMMARY_COLUMNS, markdown_summary, markdown_table, summarise, summary_table
from tests.reporting.studies import FRACTIONS, results

KINDS = ("average", "identity", "zeros")
ORDERS = ("lambda", "random")


def rendered(summary: pandas.DataFrame, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(summary_table(summary))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_mean_and_interval_are_those_of_scipy() -> None:
    frame = results()
    summary = summarise(frame).set_index("fraction")
    for fraction, group in frame.groupby("fraction"):
        point = summary.loc[fraction]
        scores = group["score"].to_numpy()
        low, high = stats.t.interval(0.95, len(scores) - 1, loc=scores.mean(), scale=stats.sem(scores))
        numpy.testing.assert_allclose(point[["mean", "low", "high"]].astype(float), [scores.mean(), low, high])
        assert point["seeds"] == 3
        assert point["constant_heads"] == round((1 - fraction) * 72)


def test_columns_and_rows_stand_in_the_studys_order() -> None:
    shuffled = results(constants=KINDS, orders=ORDERS)
    first = shuffled.index[0]
    shuffled = pandas.concat([shuffled.loc[[first]], shuffled.drop(first).sample(frac=1, random_state=0)])
    summary = summarise(shuffled)
    assert tuple(summary.columns) == SUMMARY_COLUMNS
    for _, line in summary.groupby(["constants", "order"], sort=False):
        assert tuple(line["fraction"]) == FRACTIONS
    assert summary["constants"].iloc[0] == "average"
    assert len(summary) == len(KINDS) * len(ORDERS) * len(FRACTIONS)


def test_drop_at_fraction_one_is_zero_and_elsewhere_relative_to_it() -> None:
    summary = summarise(results(models=("a", "b"), tasks=(("cola", "matthews"), ("sst2", "accuracy")), constants=KINDS))
    whole = summary[summary["fraction"] == 1.0]
    assert (whole["relative_drop"] == 0).all()
    originals = whole.groupby(["model", "task"])["mean"].first()
    for point in summary.to_dict("records"):
        original = originals[point["model"], point["task"]]
        assert point["relative_drop"] == pytest.approx((original - point["mean"]) / original)


def test_a_worse_log_perplexity_is_a_positive_drop() -> None:
    frame = results(tasks=(("mlm", "negative_log_perplexity"),), fractions=(1.0, 0.0))
    frame["score"] = frame["fraction"].map({1.0: -2.0, 0.0: -3.0})
    assert summarise(frame)["relative_drop"].tolist() == [0.0, 0.5]


def test_points_listed_once_give_the_same_summary_as_points_listed_for_each_combination() -> None:
    every = results(constants=KINDS, orders=ORDERS)
    once = every[
        ~((every["fraction"] == 1) & ~((every["constants"] == "average") & (every["order"] == "lambda")))
        & ~((every["fraction"] == 0) & (every["order"] != "lambda"))
    ]
    assert len(once) < len(every)
    pandas.testing.assert_frame_equal(summarise(once), summarise(every))


def test_without_fraction_one_there_is_no_drop() -> None:
    summary = summarise(results(fractions=(0.5, 0.0)))
    assert summary["relative_drop"].isna().all()
    assert "–" in markdown_summary(summary)


def test_one_seed_has_no_interval() -> None:
    summary = summarise(results(seeds=(0,)))
    assert summary[["low", "high"]].isna().all(axis=None)
    assert "±" not in markdown_summary(summary)


def test_markdown_of_one_line_of_a_study() -> None:
    summary = pandas.DataFrame(
        [
            ("m", "t", "average", "lambda", 1.0, 0, "accuracy", 3, 0.9, 0.89, 0.91, 0.0),
            ("m", "t", "average", "lambda", 0.125, 63, "accuracy", 3, 0.85, 0.8, 0.9, 0.05556),
            ("m", "t", "average", "lambda", 0.0, 72, "accuracy", 1, 0.91, math.nan, math.nan, -0.01111),
        ],
        columns=list(SUMMARY_COLUMNS),
    )
    assert markdown_summary(summary) == (
        "| Own attention | Constant heads |         Score |   Drop |\n"
        "| ------------: | -------------: | ------------: | -----: |\n"
        "|             1 |              0 | 0.900 ± 0.010 |  0.0 % |\n"
        "|           1/8 |             63 | 0.850 ± 0.050 |  5.6 % |\n"
        "|             0 |             72 |         0.910 | -1.1 % |\n"
    )


def test_markdown_of_several_lines_has_a_row_a_line_and_a_column_a_fraction() -> None:
    frame = results(constants=("average", "zeros"), fractions=(1.0, 0.5))
    frame["score"] = frame["fraction"] * 0.2 + 0.5 - frame["seed"] * 0.01
    frame.loc[(frame["constants"] == "zeros") & (frame["fraction"] == 0.5), "score"] = 0.4
    assert markdown_summary(summarise(frame)) == (
        "**Scores**\n\n"
        "| Constants |             1 |           1/2 |\n"
        "| --------- | ------------: | ------------: |\n"
        "| average   | 0.690 ± 0.025 | 0.590 ± 0.025 |\n"
        "| zeros     | 0.690 ± 0.025 | 0.400 ± 0.000 |\n"
        "\n**Relative drop**\n\n"
        "| Constants |     1 |    1/2 |\n"
        "| --------- | ----: | -----: |\n"
        "| average   | 0.0 % | 14.5 % |\n"
        "| zeros     | 0.0 % | 42.0 % |\n"
    )


def test_a_pipe_in_a_name_does_not_break_the_markdown_table() -> None:
    assert markdown_table(["Task"], [["a|b"]]).splitlines()[-1] == "| a\\|b |"


def test_terminal_table_of_one_line_shows_what_all_rows_share() -> None:
    text = rendered(summarise(results()))
    assert "all-MiniLM-L6-v2 · reviews · average · λ ascending" in text
    for label in ("1/2", "1/8", "1/16", "72"):
        assert label in text


def test_terminal_table_of_many_lines_fits_80_columns_and_breaks_no_number() -> None:
    frame = results(("bert-base-uncased", "roberta-base"), (("cola", "matthews"), ("ner", "entity_f1")), KINDS, ORDERS)
    summary = summarise(frame)
    text = rendered(summary)
    assert max(map(len, text.splitlines())) <= 80
    for point in summary.to_dict("records"):
        assert f"{point['mean']:.3f}" in text
        assert f"±{(point['high'] - point['low']) / 2:.3f}" in text
