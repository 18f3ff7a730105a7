"""The adjusted t test of means of skewed values, beside Student's and Johnson's, and its errors."""

import math

import numpy as np
import pytest
import scipy.stats

from papa.scores.intervals import ratio_with_error
from papa.scores.p_values import holm
from papa.scores.skewness import p_values_of_skewed


def adjusted(values: np.ndarray) -> np.ndarray:
    """The adjusted p values of the means of rows."""
    residuals = values - values.mean(axis=1, keepdims=True)
    return p_values_of_skewed(scipy.stats.ttest_1samp(values, 0, axis=1).statistic, residuals)


def student(values: np.ndarray) -> np.ndarray:
    return np.asarray(scipy.stats.ttest_1samp(values, 0, axis=1).pvalue)


LEFT = np.array([[-2.0, 1.0, 1.5, 2.0, 2.5, 3.0]])
"""Values of which one is far below the others; their mean is above 0."""
SYMMETRIC = np.array([[-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]])


def test_without_skewness_it_is_students_test() -> None:
    assert adjusted(SYMMETRIC) == pytest.approx(student(SYMMETRIC), rel=1e-6)
    assert adjusted(LEFT) > 1.2 * student(LEFT), "negative control"


def test_small_skewness_is_adjusted_as_johnson_does() -> None:
    values = -np.random.default_rng(0).gamma(20.0, size=(1, 400))
    values += 2 * values.std() / math.sqrt(400) - values.mean()
    count = values.size
    deviation = values.std(ddof=1)
    third_moment = ((values - values.mean()) ** 3).mean()
    mean = values.mean()
    # Johnson (1978), Equation 2.6, for a mean of 0.
    shift = third_moment / (6 * deviation**2 * count) + third_moment * mean**2 / (3 * deviation**4)
    johnson = (mean + shift) / (deviation / math.sqrt(count))
    t_of_p = scipy.stats.t.isf(adjusted(values) / 2, count - 1)
    assert third_moment < 0
    assert t_of_p == pytest.approx(johnson, abs=2e-3)
    assert mean / (deviation / math.sqrt(count)) - johnson > 0.02, "negative control"


def test_skewness_that_makes_t_too_small_is_not_adjusted() -> None:
    assert adjusted(-LEFT) == pytest.approx(adjusted(LEFT)), "the mirror image"
    right = LEFT.mean() * 2 - LEFT
    assert right.mean() > 0
    assert adjusted(right) == pytest.approx(student(right), rel=1e-6)


def test_a_mean_is_adjusted_by_the_skewness_of_others() -> None:
    alone = adjusted(SYMMETRIC)
    together = adjusted(np.concatenate([SYMMETRIC, LEFT]))
    assert together[0] > alone
    balanced = adjusted(np.concatenate([SYMMETRIC, LEFT, LEFT.mean() * 2 - LEFT]))
    assert balanced[0] > alone, "opposite skewness does not cancel"


def test_no_p_value_is_below_students() -> None:
    values = np.random.default_rng(0).lognormal(0, 1.5, (50, 12)) - 2
    assert (adjusted(values) >= student(values) * (1 - 1e-9)).all()


def test_values_without_spread_have_no_p_value() -> None:
    t = np.array([math.nan, 2.0])
    residuals = np.array([[0.0, 0.0, 0.0], [-1.0, 0.0, 1.0]])
    assert np.isnan(p_values_of_skewed(t, residuals)).tolist() == [True, False]
    assert np.isnan(p_values_of_skewed(t[:1], residuals[:1])).all()


@pytest.mark.parametrize("signs", [[-1], [-1, 1]], ids=["far below", "far below or above"])
@pytest.mark.parametrize("count", [32, 256])
def test_at_most_5_percent_of_families_have_a_false_mean_above_0(
    count: int, signs: list[int]
) -> None:
    """Of 120 ratios, such as mean losses over texts of different lengths."""
    generator = np.random.default_rng(count)
    families = 200
    false_means = {"adjusted": 0, "student": 0}
    for _ in range(families):
        skewed = generator.lognormal(-4.5, 1, (120, count)) - math.exp(-4)
        values = generator.normal(0, 0.02, (120, count))
        values += generator.choice(signs, (120, 1)) * skewed
        lengths = generator.integers(1, 40, count).astype(np.float64)
        sums = values * lengths
        means, errors = ratio_with_error(
            count,
            sums.sum(axis=1),
            (sums**2).sum(axis=1),
            (sums * lengths).sum(axis=1),
            lengths.sum(),
            (lengths**2).sum(),
        )
        t = means / errors
        p_values = {
            "adjusted": p_values_of_skewed(t, sums - means[:, None] * lengths),
            "student": 2 * scipy.stats.t.sf(np.abs(t), count - 1),
        }
        for name, p in p_values.items():
            is_significant = np.array(holm(p.tolist())) < 0.05
            false_means[name] += bool((is_significant & (means > 0)).any())
    # Of 200 families with a rate of 5 %, more than 16 have an error in 2 % of cases.
    assert false_means["adjusted"] <= 16
    if signs == [-1]:
        assert false_means["student"] > 16, "negative control"
