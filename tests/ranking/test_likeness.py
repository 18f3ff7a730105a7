"""How alike two head orders are, counted by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from papa.ranking.seeds import kendall_tau, kept_in_common

HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_tau_counts_pairs_that_stand_alike() -> None:
    assert kendall_tau(HEADS, HEADS) == 1
    assert kendall_tau(HEADS, HEADS[::-1]) == -1
    # One of six pairs is turned: (5 - 1) / 6.
    assert kendall_tau(HEADS, [HEADS[1], HEADS[0], *HEADS[2:]]) == pytest.approx(4 / 6)
    numbers = np.random.default_rng(0)
    first, other = ([HEADS[place] for place in numbers.permutation(4)] for _ in range(2))
    alike = [
        (first.index(one) - first.index(two)) * (other.index(one) - other.index(two)) > 0
        for one, two in combinations(HEADS, 2)
    ]
    assert kendall_tau(first, other) == pytest.approx(2 * np.mean(alike) - 1)


def test_heads_kept_are_those_that_stay_input_dependent() -> None:
    other = [HEADS[2], HEADS[0], HEADS[1], HEADS[3]]
    assert kept_in_common(HEADS, other, 1) == pytest.approx(2 / 3)
    assert kept_in_common(HEADS, other, 2) == 1 / 2
    assert kept_in_common(HEADS, other, 3) == 1
    assert kept_in_common(HEADS, HEADS[::-1], 3) == 0
