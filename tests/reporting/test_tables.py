"""The summary's numbers and how they are written."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
from rich.console import Console
from scipy import stats

from papa.reporting.tables import contrast_table, score_tables, summary_table
from papa.reporting.wording import score_label
from papa.scores.intervals import Measured
from papa.scores.summary import not_beaten, read_table, summarise
from tests.reporting.studies import FRACTIONS, markdown_of, results

KINDS = ("average", "identity", "zeros")
ORDERS = ("lambda", "random")


def rendered(summary: pandas.DataFrame, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(summary_table(summary))
    return console.file.getvalue()  # type: ignore[attr-defined]


def over_examples(influence: numpy.ndarray) -> float:
    """Half the interval's width over examples: the jackknife's, with what the rule of
    three leaves.
    """
    return math.hypot(
        1.9605 * numpy.linalg.norm(influence - influence.mean()), 3.84 / len(influence)
    )


def test_mean_and_interval_over_seeds_are_those_of_scipy() -> None:
    frame = results()
    summary = summarise(frame).set_index("fraction")
    for fraction, group in frame.groupby("fraction"):
        point = summary.loc[fraction]
        scores = group["score"].to_numpy()
        low, high = stats.t.interval(
            0.95, len(scores) - 1, loc=scores.mean(), scale=stats.sem(scores)
        )
        half = math.hypot((high - low) / 2, over_examples(group["influence"].iloc[0]))
        expected = [scores.mean(), scores.mean() - half, scores.mean() + half]
        numpy.testing.assert_allclose(
            point[["mean", "low", "high"]].astype(float), expected, rtol=1e-4
        )
        assert point["seeds"] == 3
        assert point["constant_heads"] == round((1 - fraction) * 72)


def test_an_interval_ends_at_the_best_score_and_its_label_shows_its_ends() -> None:
    frame = results(fractions=(1.0,))
    frame["score"] = 1.0
    frame["influence"] = [numpy.zeros(100, numpy.float32)] * len(frame)
    point = summarise(frame).iloc[0]
    assert (point["mean"], point["high"]) == (1, 1)
    assert point["low"] == pytest.approx(1 - 0.038415, abs=1e-6)
    assert score_label(*point[["mean", "low", "high"]]) == "1.000 (0.962 to 1.000)"


def test_columns_and_rows_stand_in_the_studys_order() -> None:
    shuffled = results(constants=KINDS, orders=ORDERS)
    first = shuffled.index[0]
    shuffled = pandas.concat(
        [shuffled.loc[[first]], shuffled.drop(first).sample(frac=1, random_state=0)]
    )
    summary = summarise(shuffled)
    for _, line in summary.groupby(["constants", "order"], sort=False):
        assert tuple(line["fraction"]) == FRACTIONS
    assert summary["constants"].iloc[0] == "average"
    assert len(summary) == len(KINDS) * len(ORDERS) * len(FRACTIONS)


def test_drop_at_fraction_one_is_zero_and_elsewhere_relative_to_it() -> None:
    tasks = (("cola", "matthews"), ("sst2", "accuracy"))
    summary = summarise(results(("a", "b"), tasks, KINDS))
    whole = summary[summary["fraction"] == 1.0]
    assert (whole["relative_drop"] == 0).all()
    originals = whole.groupby(["encoder", "task"])["mean"].first()
    for point in summary.to_dict("records"):
        original = originals[point["encoder"], point["task"]]
        assert point["relative_drop"] == pytest.approx((original - point["mean"]) / original)


def test_without_fraction_one_there_is_no_drop() -> None:
    summary = summarise(results(fractions=(0.5, 0.0)))
    assert summary["relative_drop"].isna().all()
    assert "–" in markdown_of(summary)


def test_one_seed_has_no_interval_and_cannot_tell() -> None:
    summary = summarise(results(seeds=(0,)))
    assert summary[["low", "high"]].isna().all(axis=None)
    assert "±" not in markdown_of(summary)
    assert set(summary["reason"]) == {"one seed has no interval"}


def test_markdown_of_one_line_of_a_study() -> None:
    frame = results(fractions=(1.0, 0.0625, 0.0), seeds=(0, 1))
    frame["score"] = [0.91, 0.89, 0.82, 0.78, 0.92, 0.90]
    assert markdown_of(summarise(frame)) == (
        "|       Input-dependent | Constant heads |                  Score |          Drop |\n"
        "| --------------------: | -------------: | ---------------------: | ------------: |\n"
        "|                     1 |              0 | 0.900 (0.772 to 1.000) |         0.0 % |\n"
        "|          1/16 (5.6 %) |             68 | 0.800 (0.546 to 1.000) | 11.1 ± 15.7 % |\n"
        "|                     0 |             72 | 0.910 (0.782 to 1.000) |  -1.1 ± 0.6 % |\n"
        "|     always 'negative' |                |                  0.500 |               |\n"
        "| word embeddings alone |                |          0.601 ± 0.016 |               |\n"
    )


def test_markdown_of_several_lines_has_a_row_a_line_and_a_column_a_fraction() -> None:
    frame = results(constants=("average", "zeros"), fractions=(1.0, 0.5))
    frame["score"] = frame["fraction"] * 0.2 + 0.5 - frame["seed"] * 0.01
    frame.loc[(frame["constants"] == "zeros") & (frame["fraction"] == 0.5), "score"] = 0.4
    assert markdown_of(summarise(frame)) == (
        "**Scores**\n"
        "\n"
        "| Constants |             1 |           1/2 |\n"
        "| --------- | ------------: | ------------: |\n"
        "| average   | 0.690 ± 0.028 | 0.590 ± 0.028 |\n"
        "| zeros     | 0.690 ± 0.028 | 0.400 ± 0.013 |\n"
        "\n"
        "**Relative drop**\n"
        "\n"
        "| Constants |     1 |          1/2 |\n"
        "| --------- | ----: | -----------: |\n"
        "| average   | 0.0 % | 14.5 ± 0.6 % |\n"
        "| zeros     | 0.0 % | 42.0 ± 2.3 % |\n"
        "\n"
        "**Baselines**\n"
        "\n"
        "| Encoder          |      Original |  Always one answer | Word embeddings alone | Beats both |\n"  # noqa: E501
        "| ---------------- | ------------: | -----------------: | --------------------: | ---------- |\n"  # noqa: E501
        "| all-MiniLM-L6-v2 | 0.690 ± 0.028 | 0.500 ('negative') |         0.601 ± 0.015 | yes        |\n"  # noqa: E501
    )


def without_baselines(**choices: Any) -> pandas.DataFrame:
    """Of a model's own head."""
    frame = results(fractions=(1.0, 0.0), **choices)
    return frame.assign(always_one_answer=math.nan, one_answer="", word_embeddings=math.nan)


def test_what_has_no_baselines_has_no_rows_of_them() -> None:
    (scores,) = score_tables(summarise(without_baselines()))
    assert [row[0] for row in scores.rows] == ["1", "0"]
    several = summarise(without_baselines(constants=("average", "zeros")))
    assert [table.heading for table in score_tables(several)] == ["Scores", "Relative drop"]
    assert "Baselines" not in rendered(several)
    mixed = [without_baselines(), results(tasks=(("sst2", "accuracy"),), fractions=(1.0, 0.0))]
    (baselines,) = score_tables(summarise(pandas.concat(mixed)))[2:]
    assert [row[0] for row in baselines.rows] == ["sst2"]


def test_a_drop_has_the_interval_of_its_paired_differences() -> None:
    frame = results(fractions=(1.0, 0.0))
    frame["score"] = [0.70, 0.80, 0.90, 0.67, 0.76, 0.85]
    drop = summarise(frame).iloc[1]
    # Differences 0.03, 0.04 and 0.05; the scores themselves vary ten times as much.
    low, high = stats.t.interval(0.95, 2, loc=0.04, scale=0.01 / math.sqrt(3))
    assert drop["relative_drop"] == pytest.approx(0.05)
    original, cell = frame["influence"].iloc[0], frame["influence"].iloc[-1]
    half = math.hypot((high - low) / 2, over_examples(original - cell))
    found = drop["difference_low"], drop["difference"], drop["difference_high"]
    assert found == pytest.approx((0.04 - half, 0.04, 0.04 + half), rel=1e-4)
    assert drop["drop_low"] > 0, "the difference is seen"
    assert drop["low"] < 0.67, "the scores' own interval would hide it"


def test_an_own_metric_that_no_example_changes_beats_nothing() -> None:
    def same(seeds: int, rows: int) -> Measured:
        return Measured.same(range(seeds), 7.0, numpy.zeros(rows), math.nan)

    several, of_one_seed, of_one_row = same(3, 20), same(1, 20), same(3, 1)
    reason = not_beaten(several, several, several)
    assert reason == "does not beat always one answer or word embeddings alone"
    assert not_beaten(of_one_seed, of_one_seed, of_one_seed) == "one seed has no interval"
    assert not_beaten(of_one_row, of_one_row, of_one_row) == "one validation row has no interval"


@pytest.mark.parametrize(
    ("one_answer", "words", "reason"),
    [
        (0.5, 0.6, ""),
        (0.79, 0.6, "does not beat always one answer"),
        (0.5, 0.79, "does not beat word embeddings alone"),
        (0.85, 0.9, "does not beat always one answer or word embeddings alone"),
        # Beyond the interval over seeds, 0.775 to 0.825, and not beyond the one over examples as
        # well.
        (0.5, 0.774, "does not beat word embeddings alone"),
    ],
)
def test_what_does_not_beat_its_baselines_by_more_than_its_interval_is_marked(
    one_answer: float, words: float, reason: str
) -> None:
    frame = results(fractions=(1.0, 0.0)).assign(
        always_one_answer=one_answer, word_embeddings=words
    )
    # The mean is above 0.79, the lower end of its interval is not.
    frame["score"] = [0.79, 0.80, 0.81, 0.70, 0.71, 0.72]
    summary = summarise(frame)
    assert set(summary["reason"]) == {reason}
    assert set(summary["beats_baseline"]) == {not reason}
    for text in (rendered(summary), markdown_of(summary)):
        assert ("†" in text) == bool(reason)


def test_kinds_of_constants_are_contrasted_with_the_first_by_seed_and_example() -> None:
    frame = results(constants=KINDS, fractions=(1.0, 0.5, 0.0))
    summary = summarise(frame).set_index(["constants", "fraction"])
    assert summary.loc["average", "contrast"].isna().all(), "itself"
    assert summary.xs(1.0, level="fraction")["contrast"].isna().all(), "no constants"
    of = dict(list(frame.groupby(["constants", "fraction"])))
    for kind in ("identity", "zeros"):
        cell, first = of[kind, 0.0], of["average", 0.0]
        found = summary.loc[(kind, 0.0)]
        differences = first["score"].to_numpy() - cell["score"].to_numpy()
        low, high = stats.t.interval(0.95, 2, loc=differences.mean(), scale=stats.sem(differences))
        half = math.hypot(
            (high - low) / 2, over_examples(first["influence"].iloc[0] - cell["influence"].iloc[0])
        )
        expected = (differences.mean() - half, differences.mean() + half)
        assert (found["contrast_low"], found["contrast_high"]) == pytest.approx(expected, rel=1e-4)
        assert f"average − {kind}" in rendered(summarise(frame))
    assert contrast_table(summarise(results())) is None


def test_the_share_that_a_fraction_really_stands_for_is_shown() -> None:
    summary = summarise(results())
    assert summary["share_of_heads"].round(4).tolist() == [1.0, 0.5, 0.125, 0.0556, 0.0]
    assert "1/16 (5.6 %)" in rendered(summary)
    many = results(constants=KINDS)
    assert "1/16 (5.6 %)" in markdown_of(summarise(many))
    assert "1/16 stands for 5.6 % of the heads of all-MiniLM-L6-v2" in " ".join(
        rendered(summarise(many)).split()
    )
    # With 144 heads 1/16 is 9 of them: nothing to say.
    assert "6.2 %" not in rendered(
        summarise(many.assign(heads=144, constant_heads=144 * (1 - many["fraction"])))
    )


def test_f1_says_of_which_class_it_is() -> None:
    summary = summarise(results(tasks=(("mrpc", "f1"), ("cola", "matthews"))))
    assert "F1 of 'equivalent'" in markdown_of(summary)
    assert "F1 of 'equivalent': mean" in rendered(summarise(results(tasks=(("mrpc", "f1"),))))


def test_names_cannot_break_out_of_a_table() -> None:
    name = "a|b <img src=x> [c](http://d) `e` *f* _g_ [/red]"
    frame = results(encoders=(name, "other"), constants=KINDS).assign(one_answer=name)
    summary = summarise(frame)
    text = markdown_of(summary)
    assert "\\<img src=x\\> \\[c\\](http\\://d) \\`e\\` \\*f\\* \\_g\\_" in text
    rows = [line for line in text.splitlines() if "average" in line]
    assert len({line.count("|") - line.count("\\|") for line in rows}) == 1
    assert "[/red]" in rendered(summary, width=400), "Rich shows it and takes it for no markup"


def test_a_summary_reads_back_as_it_was_written(tmp_path: Path) -> None:
    frame = results(("1", "NA"), (("mrpc", "f1"),)).assign(one_answer="None", positive="NA")
    for written in (frame, frame[frame["seed"] == 0].assign(always_one_answer=math.nan)):
        summary = summarise(written)
        summary.to_csv(tmp_path / "summary.csv", index=False)
        pandas.testing.assert_frame_equal(read_table(tmp_path / "summary.csv"), summary)


def test_terminal_table_of_one_line_shows_what_all_rows_share() -> None:
    text = rendered(summarise(results()))
    assert "all-MiniLM-L6-v2 · reviews · average · λ ascending" in text
    for label in ("1/2", "1/8", "1/16", "72"):
        assert label in text
    assert text.count("├─") == 1, "before the baselines"


def test_terminal_table_of_many_lines_fits_80_columns_and_breaks_no_number() -> None:
    encoders, tasks = ("bert-base-uncased", "roberta-base"), (("cola", "matthews"), ("ner", "f1"))
    summary = summarise(results(encoders, tasks, KINDS, ORDERS))
    text = rendered(summary)
    assert max(map(len, text.splitlines())) <= 80
    for point in summary.to_dict("records"):
        assert f"{point['mean']:.3f}" in text
        assert f"±{(point['high'] - point['low']) / 2:.3f}" in text
