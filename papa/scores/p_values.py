"""Tests of the difference of two scores, and their correction for the number of comparisons."""

import math
from collections.abc import Sequence

from papa.scores.intervals import SeedScores, paired_difference

_SMALLEST = 1e-12
"""The smallest p value that is searched for, and reported."""


def p_value(first: SeedScores, second: SeedScores, extra_deviation: float = 0.0) -> float:
    """Return the p value of the difference of two scores: ``_SMALLEST`` or more, nan without an
    interval.

    It is 1 minus the largest confidence at which the interval of ``paired_difference``, by what
    seeds, examples and ``extra_deviation`` show, excludes 0.
    """
    from scipy.optimize import brentq

    def excess(log_p: float) -> float:
        """Return by how much half the interval's width exceeds the mean: above 0 where 0 is
        inside.
        """
        confidence = 1 - math.exp(log_p)
        interval = paired_difference(
            first, second, confidence, rule_of_three=False, extra_deviation=extra_deviation
        )
        return interval.high - interval.mean - abs(interval.mean)

    lowest_log_p = math.log(_SMALLEST)
    if math.isnan(excess(lowest_log_p)):
        return math.nan
    if excess(0.0) >= 0:
        return 1.0
    if excess(lowest_log_p) < 0:
        return _SMALLEST
    return math.exp(brentq(excess, lowest_log_p, 0.0, xtol=1e-4))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values of comparisons adjusted for their number (Holm, 1979): the chance of any
    below .05 is 5 % if nothing differs. nan stays nan and counts as no comparison.
    """
    ascending = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(ascending):
        largest = max(largest, min(1.0, (len(ascending) - rank) * p))
        adjusted[index] = largest
    return adjusted
