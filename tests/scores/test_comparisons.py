"""Differences beyond chance, one by one and together."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from papa.scores.intervals import Measured, deviation_of_lists, difference, holm, p_value
from tests.scores.cases import ROWS, hits, lists_of_noise

SEEDS = 5


def scores_of(numbers: np.random.Generator, *shares: float) -> list[Measured]:
    """Accuracies of orders that are as good as ``shares``, on the same examples, some of which are
    hard for all.
    """
    hard, found = numbers.normal(size=ROWS), []
    for share in shares:
        noise = numbers.normal(size=(SEEDS, ROWS)) + 0.05 * numbers.normal(size=(SEEDS, 1))
        found.append(hits((hard + noise) / math.sqrt(2) < share))
    return found


def test_the_p_value_is_where_the_interval_meets_zero() -> None:
    first, other = scores_of(np.random.default_rng(0), 0.9, 0.6)
    p = p_value(first, other)
    found = difference(first, other, confidence=1 - p, unseen=False)
    assert found.low == pytest.approx(0, abs=1e-4)
    assert p == pytest.approx(p_value(other, first))
    assert (p < 0.05) == (difference(first, other, unseen=False).low > 0)
    assert p_value(first, first) == 1, "equal scores differ by chance"
    alone = Measured({0: first.scores[0]}, {0: first.influence[0]})
    assert math.isnan(p_value(alone, other)), "one seed tells nothing"


def test_holm_of_a_case_by_hand() -> None:
    # 4 × .005, 3 × .01, 2 × .03 and, as no later one may be smaller, .06 again.
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([math.nan, 0.04])[1] == 0.04, "what cannot be tested is no comparison"
    assert holm([]) == []


def test_a_difference_that_few_examples_show_is_told() -> None:
    """One in fifty is answered by the one alone, whatever the seed: the rule of three, which says
    how much no example may have shown, would hide it."""
    hard = np.random.default_rng(0).normal(size=300)
    first, other = (hits(np.tile(hard < share, (SEEDS, 1))) for share in (0.86, 0.8))
    assert 0 < first.scores[0] - other.scores[0] < 3.84 / 300 * 2
    assert p_value(first, other) < 0.05


@pytest.mark.parametrize("seeds", [3, 5])
def test_of_orders_that_know_nothing_one_family_in_twenty_has_a_star(seeds: int) -> None:
    numbers, told, without, pairs = np.random.default_rng(0), [], [], []
    for _ in range(40):
        *fixed, random = lists_of_noise(numbers, 8, seeds)
        spread = deviation_of_lists(random, fixed)
        told.append(min(holm([p_value(one, random, spread) for one in fixed])) < 0.05)
        without.append(min(holm([p_value(one, random) for one in fixed])) < 0.05)
        some = list(combinations(fixed, 2))[:8]
        both = [p_value(one, other, spread * math.sqrt(2)) for one, other in some]
        pairs.append(min(holm(both)) < 0.05)
    assert np.mean(told) <= 0.05
    assert np.mean(pairs) <= 0.05
    assert seeds == 3 or np.mean(without) > 0.15, "one list beside the mean of several"


def test_an_order_far_beyond_single_lists_is_told() -> None:
    numbers, told = np.random.default_rng(0), []
    for _ in range(20):
        random = lists_of_noise(numbers, 0, over_lists=0.02)[0]
        (better,) = scores_of(numbers, 2.5)
        told.append(p_value(better, random, deviation_of_lists(random, [better])) < 0.05)
    assert np.mean(told) > 0.8
