"""Intervals against textbook values of Student's t."""

from __future__ import annotations

import math

import numpy as np
import pytest

from papa.scores.intervals import interval, paired_drop, relative_drop


def test_interval_of_three_seeds() -> None:
    # t(0.975, 2) = 4.30265; the standard error of 1, 2, 3 is 1/√3.
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == pytest.approx(2)
    assert found.high - found.mean == pytest.approx(4.30265 / math.sqrt(3), abs=1e-5)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
    assert found.seeds == 3


def test_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(0.7, 0.1, size=(2000, 4))
    covered = [found.low <= 0.7 <= found.high for found in map(interval, draws.tolist())]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_one_seed_has_no_interval() -> None:
    found = interval([0.4])
    assert found.mean == 0.4
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_no_seed_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        interval([])


def test_relative_drop() -> None:
    assert relative_drop(0.8, 0.6) == pytest.approx(0.25)
    assert relative_drop(0.8, 0.9) == pytest.approx(-0.125)


def test_a_worse_score_is_a_positive_drop_where_scores_are_negative() -> None:
    assert relative_drop(-2.0, -3.0) == pytest.approx(0.5)


@pytest.mark.parametrize(("full", "found"), [(0.0, 0.1), (math.nan, 0.1), (0.5, math.nan)])
def test_relative_drop_of_nothing_is_not_a_number(full: float, found: float) -> None:
    assert math.isnan(relative_drop(full, found))


def test_a_paired_drop_is_as_sure_as_its_differences() -> None:
    # Scores vary by 0.1 from seed to seed, their differences are 0.03, 0.04 and 0.05.
    found = paired_drop({0: 0.7, 1: 0.8, 2: 0.9}, {0: 0.67, 1: 0.76, 2: 0.85})
    assert found.mean == pytest.approx(0.04 / 0.8)
    assert found.high - found.mean == pytest.approx(4.30265 * 0.01 / math.sqrt(3) / 0.8, abs=1e-5)
    assert found.mean == pytest.approx(relative_drop(0.8, 0.76))


def test_only_seeds_that_both_have_are_paired() -> None:
    found = paired_drop({0: 0.8, 1: 0.6, 2: 0.1}, {1: 0.3, 0: 0.7, 5: 0.9})
    assert found.seeds == 2
    assert found.mean == pytest.approx(0.2 / 0.7)


def test_a_drop_of_one_seed_has_no_interval_and_of_none_no_value() -> None:
    one = paired_drop({0: 0.8}, {0: 0.6})
    assert one.mean == pytest.approx(0.25)
    assert math.isnan(one.low)
    assert math.isnan(paired_drop({0: 0.8}, {1: 0.6}).mean)
    assert math.isnan(paired_drop({0: 0.0, 1: 0.0}, {0: 0.1, 1: 0.2}).mean)


def test_a_paired_drop_of_a_log_perplexity_is_positive_where_it_got_worse() -> None:
    assert paired_drop({0: -2.0, 1: -2.2}, {0: -3.0, 1: -3.3}).low > 0
