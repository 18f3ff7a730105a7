"""Intervals against textbook values of Student's t; what is paired, and what is not known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from papa.scores.intervals import (
    SeedScores,
    clipped,
    example_unit,
    interval_over_seeds,
    interval_over_seeds_and_examples,
    mean_over_examples,
    over_examples,
    paired_difference,
    paired_drop,
    relative_drop,
)
from tests.scores.helpers import hits


def test_student_t_of_three_seeds_by_hand() -> None:
    # t(0.975, 2) = 4.30265; the standard error of 1, 2, 3 is 1/√3.
    mean_interval = interval_over_seeds([1.0, 2.0, 3.0])
    half = 4.30265 / math.sqrt(3)
    assert (mean_interval.low, mean_interval.mean, mean_interval.high) == pytest.approx(
        (2 - half, 2, 2 + half), abs=1e-5
    )
    drops = {(0.8, 0.6): 0.25, (0.8, 0.9): -0.125, (-2.0, -3.0): 0.5}
    for both, drop in drops.items():
        assert relative_drop(*both) == pytest.approx(drop), "positive where the score got worse"
    assert math.isnan(relative_drop(0.0, 0.1))


def measured(scores: dict[int, float], influence: float = 0.0, rows: int = 10**6) -> SeedScores:
    """Scores on which every second example has this influence, every other the opposite."""
    values = influence * np.tile([1.0, -1.0], rows // 2)
    return SeedScores(scores, dict.fromkeys(scores, values))


def test_variances_over_seeds_or_examples_add_up() -> None:
    scores = {0: 0.7, 1: 0.8, 2: 0.9}
    over_seeds = 4.30265 * 0.1 / math.sqrt(3)
    for influence, half in ((0.0, over_seeds), (1e-4, math.hypot(over_seeds, 1.96 * 0.1))):
        total = interval_over_seeds_and_examples(measured(scores, influence))
        assert total.high - total.mean == pytest.approx(half, abs=1e-4)
    correct = np.tile(np.arange(4000) < 3000, (2, 1))
    binomial = 1.96 * math.sqrt(0.1875 / 4000)
    total = interval_over_seeds_and_examples(hits(correct))
    assert binomial < total.high - total.mean < 1.01 * binomial, "the binomial's"


@pytest.mark.parametrize(
    ("metric", "lowest", "most"),
    [
        ("f1", 0, 1),
        *((measure, -1, 1) for measure in ("cosine", "similarities", "spearman")),
        ("negative_log_perplexity", -math.inf, 0),
        *((measure, 0, math.inf) for measure in ("divergence", "loss_before", "loss_after")),
        ("cosine_lost", 0, 2),
        ("loss_difference", -math.inf, math.inf),
    ],
)
def test_intervals_stay_within_a_metrics_range(metric: str, lowest: float, most: float) -> None:
    for mean in (min(most, 5.0), max(lowest, -5.0)):
        free = interval_over_seeds([mean - 0.3, mean, mean + 0.3])
        cut = clipped(metric, free)
        assert (cut.low, cut.high) == (max(free.low, lowest), min(free.high, most))
    assert math.isnan(clipped(metric, interval_over_seeds([0.5])).high), "one seed has no ends"


def test_equal_answers_leave_what_the_rule_of_three_does() -> None:
    """None of 300 examples differs, so up to 3.7 in 300 may: the exact two-sided bound."""
    original = np.random.default_rng(0).random((3, 300)) < 0.8
    lost = paired_difference(hits(original), hits(original.copy()))
    assert lost.mean == 0
    assert 3.7 / 300 < lost.high < 4 / 300


def test_a_drop_is_paired_by_example_as_by_seed() -> None:
    """The cell misses what the original misses: the drop is sure, the scores are not."""
    draw = np.random.default_rng(0)
    original = draw.random((3, 2000)) < 0.6
    cell = original & (draw.random((3, 2000)) < 0.95)
    paired = paired_drop(hits(original), hits(cell))
    assert paired.low < 1 - cell.mean() / original.mean() < paired.high
    apart = paired_drop(hits(original), hits(draw.permuted(cell, axis=1)))
    assert apart.high - apart.low > 1.3 * (paired.high - paired.low)


def test_scores_on_other_examples_are_not_paired() -> None:
    draw = np.random.default_rng(1)
    smaller, two = (hits(draw.random((3, rows)) < 0.7) for rows in (400, 900))
    score_difference = paired_difference(smaller, two)
    half = 1.96 * math.sqrt(0.7 * 0.3 / 3 * (1 / 400 + 1 / 900))
    assert score_difference.high - score_difference.mean > half
    assert not math.isnan(score_difference.low)


def test_only_seeds_that_both_have_are_paired() -> None:
    both = paired_difference(measured({0: 0.8, 1: 0.6, 2: 0.1}), measured({1: 0.5, 0: 0.7, 5: 0.9}))
    assert both.mean == pytest.approx(0.1)
    assert math.isnan(paired_difference(measured({0: 0.8}), measured({1: 0.6})).mean)


def test_a_drop_by_the_seeds_shares_is_surer_than_one_by_their_differences() -> None:
    """Every seed loses a tenth: the ratio is sure, and the differences are not."""
    scores = {0: 0.79, 1: 0.8, 2: 0.81}
    lost = {seed: 0.9 * score for seed, score in scores.items()}
    drop = paired_drop(measured(scores), measured(lost))
    assert (drop.low, drop.mean, drop.high) == pytest.approx((0.1, 0.1, 0.1), abs=1e-4)


def test_intervals_of_a_metric_of_ones_own_grow_with_its_scale() -> None:
    """What one example may change of it is known from examples alone."""

    def custom_scores(scale: float, level: float, influence: float) -> SeedScores:
        drawn = measured({0: scale * level, 1: scale * (level + 0.01)}, scale * influence, rows=20)
        return replace(drawn, example_unit=example_unit("custom"))

    (original, cell), (large, half) = (
        (custom_scores(scale, 0.7, 0.01), custom_scores(scale, 0.6, 0.02)) for scale in (1.0, 100.0)
    )
    assert interval_over_seeds_and_examples(large).high == pytest.approx(
        100 * interval_over_seeds_and_examples(original).high
    )
    assert paired_drop(large, half).high == pytest.approx(paired_drop(original, cell).high)
    known = paired_drop(replace(large, example_unit=1.0), replace(half, example_unit=1.0))
    assert known.high != pytest.approx(paired_drop(large, half).high, rel=1e-5), "a control"
    assert math.isnan(interval_over_seeds_and_examples(custom_scores(1.0, 0.7, 0.0)).low), (
        "no two examples differ"
    )
    assert math.isnan(example_unit("negative_log_perplexity")), "a loss has no scale either"


def test_an_original_near_zero_has_only_a_difference() -> None:
    near = measured({0: 0.01, 1: 0.05, 2: 0.03})
    cell = measured({0: 0.0, 1: 0.0, 2: 0.0})
    sure, unsure = (measured({0: 0.3, 1: 0.31, 2: 0.3}, influence) for influence in (0.0, 2e-4))
    assert math.isnan(paired_drop(near, cell).mean)
    assert paired_difference(near, cell).mean == pytest.approx(0.03)
    assert paired_drop(sure, cell).mean == pytest.approx(1)
    assert math.isnan(paired_drop(unsure, cell).mean)


def test_a_drop_of_one_seed_or_example_has_no_interval() -> None:
    drop = paired_drop(measured({0: 0.8}), measured({0: 0.6}))
    assert drop.mean == pytest.approx(0.25)
    assert math.isnan(drop.low)
    assert math.isnan(
        interval_over_seeds_and_examples(
            SeedScores({0: 0.1, 1: 0.2}, dict.fromkeys((0, 1), np.zeros(1)))
        ).low
    )
    worse = paired_drop(measured({0: -2.0, 1: -2.02}), measured({0: -3.0, 1: -3.03}))
    assert (worse.mean, worse.low > 0) == (pytest.approx(0.5), True), "of a log-perplexity"


def test_a_mean_stays_within_what_its_measure_can_be() -> None:
    agreement = mean_over_examples("agreement", np.ones(8, dtype=bool))
    assert agreement.low < agreement.mean == agreement.high == 1
    losses = mean_over_examples("loss_after", np.array([0.9, 1.1] * 4))
    assert 1 < losses.high < 1.2, "no unit widens what examples show"
    assert np.isnan(mean_over_examples("loss_after", np.ones(8)).high)


def test_a_mean_over_answers_has_an_interval_over_examples() -> None:
    values = np.array([1.0, 3, 5, 7, 2, 4])
    lengths = np.array([2, 1, 3])
    means_without = [np.mean([5, 7, 2, 4]), np.mean([1, 3, 7, 2, 4]), np.mean([1, 3, 5])]
    expected = over_examples(22 / 6, 22 / 6 - np.array(means_without), math.nan)
    assert mean_over_examples("score_after", values, lengths) == expected
    assert mean_over_examples("score_after", values) != expected
    assert math.isnan(mean_over_examples("score_after", np.array([1.0])).low)
