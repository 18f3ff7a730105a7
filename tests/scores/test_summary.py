"""The summary of results: intervals of drops for a statement on all lines."""

import math

import pandas
import pytest

from papa.scores.summary import compare_studies, summarise
from papa.scores.verdicts import drops_of_all_lines
from tests.reporting.studies import LOG, ROWS, results


def results_of(lines: int) -> pandas.DataFrame:
    names = [f"encoder {line}" for line in range(lines)]
    return results(encoders=names, fractions=(1.0, 0.0))


def drop_width(summary: pandas.DataFrame) -> float:
    """The width of the interval of the first line's drop."""
    row = summary[summary["constant_heads"] > 0].iloc[0]
    return float(row["drop_high"] - row["drop_low"])


@pytest.mark.parametrize(("lines", "confidence"), [(1, 0.95), (2, 0.95), (10, 0.99)])
def test_intervals_of_drops_allow_for_more_than_two_lines(lines: int, confidence: float) -> None:
    frame = results_of(lines)
    width = drop_width(drops_of_all_lines(frame))
    assert width == pytest.approx(drop_width(summarise(frame, drop_confidence=confidence)))
    assert (width > 1.2 * drop_width(summarise(frame))) == (lines == 10)


def test_scores_keep_their_intervals_whatever_the_number_of_lines() -> None:
    frame = results_of(10)
    columns = ["mean", "low", "high"]
    pandas.testing.assert_frame_equal(drops_of_all_lines(frame)[columns], summarise(frame)[columns])


def test_an_original_that_equals_a_baseline_does_not_beat_it() -> None:
    """Losses that differ in no example have a difference without an interval."""
    frame = results(tasks=[("words", LOG)], fractions=(1.0,))
    assert summarise(frame)["beats_baseline"].all()
    equal = frame.assign(always_one_answer=frame["score"], one_answer_influence=frame["influence"])
    summary = summarise(equal)
    assert not summary["beats_baseline"].any()
    assert (summary["reason"] != "").all()


def test_each_study_drops_from_its_own_original() -> None:
    first = results(encoders=("a", "b"))
    second = first.assign(score=2 * first["score"])
    table = compare_studies({"first": first, "second": second})
    for name, frame in (("first", first), ("second", second)):
        mine = table[table["study"] == name].reset_index(drop=True)
        contrasts = [column for column in mine if column.startswith("contrast")]
        expected = summarise(frame).drop(columns=contrasts)
        pandas.testing.assert_frame_equal(mine.drop(columns=["study", *contrasts]), expected)
        drops = table.loc[table["study"] == "first", "relative_drop"]
        assert mine["relative_drop"].tolist() == pytest.approx(drops.tolist())


def test_studies_are_contrasted_by_seed_and_example() -> None:
    first = results()
    second = results(seeds=(3, 4, 5))
    scores = first["score"] - 0.05 + 0.002 * (second["seed"] - 4)
    second = second.assign(score=scores, seed=second["seed"])
    table = compare_studies({"first": first, "other": second}).set_index(["study", "fraction"])
    assert table.loc["first", "contrast"].isna().all(), "itself"
    assert set(table.loc["other", "contrast_with"]) == {"first"}
    over_seeds = 4.30265 * 0.002 / math.sqrt(3)
    over_examples = 3.84 / ROWS
    paired = math.hypot(over_seeds, over_examples)
    for cell in table.loc["other"].to_dict("records"):
        assert cell["contrast"] == pytest.approx(0.05)
        half = (cell["contrast_high"] - cell["contrast_low"]) / 2
        assert half == pytest.approx(paired, rel=1e-3)
    metric = compare_studies({"a": first, "b": first.assign(metric="f1")})
    assert metric["contrast"].isna().all()
