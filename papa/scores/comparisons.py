"""Whether scores differ beyond chance: one difference's interval, or many at once (Holm, 1979)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from papa.scores.intervals import Measured, difference

_LEAST = 1e-12
"""The smallest p value that is told."""


def p_value(first: Measured, second: Measured) -> float:
    """How surely two scores differ: one less the largest confidence at which the interval of their
    ``difference`` leaves 0 out.

    Returns:
        1e-12 at least; nan where the interval has no ends.
    """
    found = difference(first, second)
    if math.isnan(found.low):
        return math.nan
    from scipy.optimize import brentq

    def excess(exponent: float) -> float:
        wide = difference(first, second, 1 - math.exp(exponent))
        return wide.high - wide.mean - abs(found.mean)

    least = math.log(_LEAST)
    if found.mean == 0 or excess(least) < 0:
        return 1.0 if found.mean == 0 else _LEAST
    return math.exp(brentq(excess, least, 0.0, xtol=1e-4))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values of comparisons that are made together, so adjusted that the chance of any below .05
    where nothing differs is 5 % (Holm, 1979).

    Those that are nan stay so and count as no comparison.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted
