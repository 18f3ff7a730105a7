"""Intervals over seeds and validation examples together (paper, Sections 4.1 and 4.2), as
docs/results.md says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from papa.scores.metrics import influence
from papa.spec import Metric
from papa.spec.task import RANKED, is_own

_ANY = (-math.inf, math.inf)
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("matthews", *RANKED, "similarities", "cosine"), (-1.0, 1.0)),
    **dict.fromkeys(("divergence", "loss_before", "loss_after"), (0.0, math.inf)),
    **dict.fromkeys(("score_before", "score_after", "score_difference", "loss_difference"), _ANY),
    "negative_log_perplexity": (-math.inf, 0.0),
    "cosine_lost": (0.0, 2.0),
    **{
        f"sklearn:{name}_score": (0.0, 1.0)
        for name in ("accuracy", "balanced_accuracy", "f1", "jaccard", "precision", "recall")
    },
    **dict.fromkeys(("sklearn:cohen_kappa_score", "sklearn:matthews_corrcoef"), (-1.0, 1.0)),
}
"""Where scores and measures lie, if not from 0 to 1."""
_CONTINUOUS = ("negative_log_perplexity", "cosine")
_ZERO = 1e-12
"""A score of this size is one of nothing but rounding; the smallest p value that is told."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval, whose ends are nan for one seed."""

    mean: float
    low: float
    high: float

    @classmethod
    def around(cls, mean: float, half: float) -> Interval:
        return cls(float(mean), float(mean) - half, float(mean) + half)


NOT_KNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Measured:
    """Scores of one thing by seed, and what each loses without each validation example.

    Attributes:
        unit: what one example in n may change, times n; nan where nobody knows.
    """

    scores: Mapping[int, float]
    influence: Mapping[int, Float[np.ndarray, " rows"]]
    unit: float = 1.0

    @classmethod
    def of(
        cls,
        metric: Metric,
        scores: Mapping[int, float],
        examples: Sequence[Float[np.ndarray, "rows k"]],
    ) -> Measured:
        """From what each example adds to each seed's score (``papa.scores.metrics``)."""
        values = [influence(metric, of_seed) for of_seed in examples]
        return cls(scores, dict(zip(scores, values, strict=True)), unit_of(metric))


def unit_of(metric: str) -> float:
    """A score's ``Measured.unit``; a loss and a cosine are continuous and have none, and nobody
    knows that of a metric of one's own.
    """
    return math.nan if is_own(metric) or metric in _CONTINUOUS else 1.0


def interval(scores: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval of the mean of independent scores; one has ends of nan."""
    count = len(scores)
    mean = math.fsum(scores) / count
    if count == 1:
        return Interval.around(mean, math.nan)
    variance = math.fsum((value - mean) ** 2 for value in scores) / (count - 1)
    return Interval.around(mean, _t(count, confidence) * math.sqrt(variance / count))


def _t(count: int, confidence: float) -> float:
    """How many standard errors of a mean of so many values half its interval is."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + confidence) / 2))


def ratio(
    inputs: int, *moments: Any
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Σs / Σn over inputs with its standard error, linear in what each input adds; from Σs, Σs²,
    Σsn, Σn and Σn². One input's error is 0.
    """
    sums, squares, products, counts, squared_counts = moments
    mean = sums / counts
    spread = (squares - 2 * mean * products + mean**2 * squared_counts).clip(min=0)
    return mean, (spread * inputs / max(inputs - 1, 1)) ** 0.5 / counts


def wilson(
    shares: Float[np.ndarray, " shares"], count: int
) -> tuple[Float[np.ndarray, " shares"], Float[np.ndarray, " shares"]]:
    """The 95 % intervals of shares of so many independent trials (Wilson, 1927); scipy has that of
    one share.
    """
    from scipy.special import ndtri

    z = ndtri(0.975)
    spread = z * np.sqrt(shares * (1 - shares) / count + z**2 / (4 * count**2))
    centre, scale = shares + z**2 / (2 * count), 1 + z**2 / count
    return ((centre - spread) / scale).clip(min=0), ((centre + spread) / scale).clip(max=1)


def over_examples(
    score: float, influences: Float[np.ndarray, " examples"], unit: float = 1.0
) -> Interval:
    """The interval of what no seed changes; no ends for one example."""
    return Interval.around(score, _half_over_examples(influences, len(influences), unit, 0.95))


def joint(found: Measured) -> Interval:
    """The mean score with its interval over seeds and examples; no ends for one of either."""
    return _joint(*_paired(found)[0], found.unit)


def clipped(metric: str, found: Interval) -> Interval:
    """The interval of a score or measure, without what nothing in the metric can be."""
    least, most = _RANGES.get(metric, _ANY if is_own(metric) else (0.0, 1.0))
    return Interval(found.mean, max(found.low, least), min(found.high, most))


def difference(
    first: Measured,
    second: Measured,
    confidence: float = 0.95,
    *,
    unseen: bool = True,
    deviation: float = 0.0,
) -> Interval:
    """The first's mean score less the second's, paired by seed and example; where examples differ
    in number they are not the same, and the variances over them are added.

    Its ends are nan for one seed or example, everything is nan where no seed is in both.

    Args:
        unseen: allow for differences that no example shows. An interval that says how large a
            difference may be does; one that tests whether there is any does not.
        deviation: what the difference has beside, such as that of single lists of heads, known from
            as many draws as there are seeds.
    """
    if not (both := _paired(first, second)):
        return NOT_KNOWN
    (one, values), (other, others) = both
    if len(values) == len(others):
        effects = values - others
    else:
        effects = np.concatenate([values - values.mean(), others - others.mean()])
    rows, unit = min(len(values), len(others)), first.unit if unseen else 0.0
    return _joint(one - other, effects, unit, rows, confidence, deviation)


def deviation_of_lists(random: Measured, others: Sequence[Measured]) -> float:
    """How far the score of one list of heads lies from the mean of random lists: the deviation over
    seeds, which draw a list each, of random scores less the others' mean; nan for one seed.
    """
    differences = [
        score - np.mean([other.scores[seed] for other in others])
        for seed, score in random.scores.items()
        if all(seed in other.scores for other in others)
    ]
    return float(np.std(differences, ddof=1)) if len(differences) > 1 else math.nan


def paired_drop(original: Measured, other: Measured) -> Interval:
    """The relative drop, (s₁ - s_f) / |s₁|, of mean scores over the seeds that both have.

    The interval is that of a ratio of means, linearised. Its ends are nan for one seed or example,
    everything is nan where no seed is in both or half the width of the original's interval is more
    than half its score.
    """
    if not (both := _paired(original, other)):
        return NOT_KNOWN
    (scores, values), (lower, others) = both
    full = _joint(scores, values, original.unit)
    size = abs(full.mean)
    if not size > _ZERO or full.high - full.mean > size / 2:
        return NOT_KNOWN
    drop = float((scores - lower).mean()) / size
    kept = 1 - math.copysign(1.0, full.mean) * drop
    over_seeds = (kept * scores - lower) / size + drop
    return _joint(over_seeds, (kept * values - others) / size, original.unit / size)


def _paired(
    *each: Measured,
) -> list[tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " rows"]]]:
    """The scores of each, and the influence of examples on their mean, over the seeds that all
    have; nothing where there is none.
    """
    seeds = [seed for seed in each[0].scores if all(seed in one.scores for one in each)]
    return [
        (
            np.array([one.scores[seed] for seed in seeds]),
            np.mean([one.influence[seed] for seed in seeds], axis=0),
        )
        for one in (each if seeds else ())
    ]


def _joint(
    scores: Float[np.ndarray, " seeds"],
    influences: Float[np.ndarray, " examples"],
    unit: float,
    rows: int | None = None,
    confidence: float = 0.95,
    deviation: float = 0.0,
) -> Interval:
    """The interval of the mean of scores that ``rows`` examples have those influences on."""
    over_seeds = interval(scores.tolist(), confidence)
    halves = [
        over_seeds.high - over_seeds.mean,
        _half_over_examples(influences, rows or len(influences), unit, confidence),
        _t(len(scores), confidence) * deviation if deviation else 0.0,
    ]
    return Interval.around(over_seeds.mean, math.hypot(*halves))


def _half_over_examples(
    influences: Float[np.ndarray, " examples"], rows: int, unit: float, confidence: float
) -> float:
    """Half the width of the interval over examples; nan for one example.

    Where n examples show nothing, up to 3.84 in n may (χ² at 95 %, one degree): the two-sided rule
    of three. A ``unit`` of 0 allows for none, and one that nobody knows (nan) has no ends there.
    """
    from scipy.special import chdtri

    if rows < 2:
        return math.nan
    deviation = math.sqrt((rows - 1) / rows * float(((influences - influences.mean()) ** 2).sum()))
    half = _t(rows, confidence) * deviation
    if math.isnan(unit) and deviation > 0:
        return half
    return math.hypot(half, unit * float(chdtri(1, 1 - confidence)) / rows)


def relative_drop(full: float, score: float) -> float:
    """(s₁ - s_f) / |s₁|, which is positive where the score got worse; nan where s₁ is 0."""
    return (full - score) / abs(full) if full else math.nan


def p_value(first: Measured, second: Measured, deviation: float = 0.0) -> float:
    """How surely two scores differ: one less the largest confidence at which the interval of the
    ``difference`` that seeds and examples show, and ``deviation`` beside them, leaves 0 out; 1e-12
    at least, nan where the interval has no ends.
    """
    from scipy.optimize import brentq

    def excess(exponent: float) -> float:
        confidence = 1 - math.exp(exponent)
        wide = difference(first, second, confidence, unseen=False, deviation=deviation)
        return wide.high - wide.mean - abs(wide.mean)

    least = math.log(_ZERO)
    if math.isnan(excess(least)):
        return math.nan
    if excess(0.0) >= 0:
        return 1.0
    return _ZERO if excess(least) < 0 else math.exp(brentq(excess, least, 0.0, xtol=1e-4))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values of comparisons that are made together, so adjusted that the chance of any below .05
    where nothing differs is 5 % (Holm, 1979); nan stays so and counts as no comparison.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted
