"""p values of differences, against their intervals, and Holm's correction by hand."""

import math

import numpy as np
import pytest

from papa.scores.intervals import SeedScores, paired_difference
from papa.scores.p_values import holm, p_value
from tests.scores.helpers import hits

SEEDS = 5
ROWS = 150


def scores_of(numbers: np.random.Generator, *shares: float) -> list[SeedScores]:
    """Accuracies of orders as good as ``shares`` on the same examples, some hard for all."""
    hard = numbers.normal(size=ROWS)
    orders = []
    for share in shares:
        noise = numbers.normal(size=(SEEDS, ROWS)) + 0.05 * numbers.normal(size=(SEEDS, 1))
        orders.append(hits((hard + noise) / math.sqrt(2) < share))
    return orders


def test_the_p_value_is_where_the_interval_meets_zero() -> None:
    first, second = scores_of(np.random.default_rng(0), 0.9, 0.6)
    p = p_value(first, second)
    score_difference = paired_difference(first, second, confidence=1 - p, rule_of_three=False)
    assert score_difference.low == pytest.approx(0, abs=1e-4)
    assert p == pytest.approx(p_value(second, first))
    assert (p < 0.05) == (paired_difference(first, second, rule_of_three=False).low > 0)
    assert p_value(first, first) == 1, "equal scores differ by chance"
    single_seed = SeedScores({0: first.scores[0]}, {0: first.influence[0]})
    assert math.isnan(p_value(single_seed, second)), "one seed tells nothing"


def test_holm_of_a_case_by_hand() -> None:
    # 4 × .005, 3 × .01, 2 × .03 and, as no later one may be smaller, .06 again.
    adjusted = holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([math.nan, 0.04])[1] == 0.04, "what cannot be tested is no comparison"
    assert holm([]) == []


def test_a_difference_that_few_examples_show_is_told() -> None:
    """One in fifty differs whatever the seed, which the rule of three would hide."""
    hard = np.random.default_rng(0).normal(size=300)
    first, second = (hits(np.tile(hard < share, (SEEDS, 1))) for share in (0.86, 0.8))
    assert 0 < first.scores[0] - second.scores[0] < 3.84 / 300 * 2
    assert p_value(first, second) < 0.05
