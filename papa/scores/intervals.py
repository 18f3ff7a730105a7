"""Intervals over seeds and validation examples together (paper, Sections 4.1 and 4.2), as
docs/results.md says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from papa.scores.metrics import mean_of
from papa.spec.task import RANKED, is_custom_metric

_UNBOUNDED = (-math.inf, math.inf)
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("matthews", *RANKED, "similarities", "cosine"), (-1.0, 1.0)),
    **dict.fromkeys(("divergence", "loss_before", "loss_after"), (0.0, math.inf)),
    **dict.fromkeys(
        ("score_before", "score_after", "score_difference", "loss_difference"), _UNBOUNDED
    ),
    "negative_log_perplexity": (-math.inf, 0.0),
    "cosine_lost": (0.0, 2.0),
    **{
        f"sklearn:{name}_score": (0.0, 1.0)
        for name in ("accuracy", "balanced_accuracy", "f1", "jaccard", "precision", "recall")
    },
    **dict.fromkeys(("sklearn:cohen_kappa_score", "sklearn:matthews_corrcoef"), (-1.0, 1.0)),
}
"""The range of scores and measures that do not lie from 0 to 1."""
_CONTINUOUS = ("negative_log_perplexity", "cosine")
_ZERO = 1e-12
"""The size below which a score is rounding error."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval, whose bounds are nan for one seed."""

    mean: float
    low: float
    high: float

    @classmethod
    def around(cls, mean: float, half: float) -> Interval:
        """Return the interval of a mean with this half-width."""
        return cls(float(mean), float(mean) - half, float(mean) + half)


NOT_KNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class SeedScores:
    """The scores of a cell or a baseline by seed, with each validation example's influence.

    Attributes:
        influence: by seed what the score loses without each example.
        unit: the largest change that one example in n can make, times n; nan if it is unknown.
    """

    scores: Mapping[int, float]
    influence: Mapping[int, Float[np.ndarray, " rows"]]
    unit: float = 1.0


def unit_of(metric: str) -> float:
    """Return the ``SeedScores.unit`` of a metric: nan for a loss and a cosine, which are
    continuous, and for custom metrics.
    """
    return math.nan if is_custom_metric(metric) or metric in _CONTINUOUS else 1.0


def interval(scores: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return Student's t interval of the mean of independent scores; bounds of nan for one."""
    count = len(scores)
    mean = math.fsum(scores) / count
    if count == 1:
        return Interval.around(mean, math.nan)
    variance = math.fsum((value - mean) ** 2 for value in scores) / (count - 1)
    return Interval.around(mean, _t(count, confidence) * math.sqrt(variance / count))


def _t(count: int, confidence: float) -> float:
    """Return the half-width of the interval of a mean of ``count`` values, in standard errors."""
    # scipy takes half a second to import, which a command that reads stored tables does without.
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + confidence) / 2))


def ratio(
    inputs: int,
    sums: Float[np.ndarray, "*shape"],
    squares: Float[np.ndarray, "*shape"],
    products: Float[np.ndarray, "*shape"],
    counts: np.ndarray | np.floating,
    squared_counts: np.ndarray | np.floating,
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Return Σs / Σn over inputs and its linearised standard error, which is 0 for one input.

    Args:
        sums: Σs, of the sum s of an input's values.
        squares: Σs².
        products: Σsn.
        counts: Σn, of the number n of an input's values: [*shape], or a scalar for all.
        squared_counts: Σn², likewise.
    """
    mean = sums / counts
    spread = (squares - 2 * mean * products + mean**2 * squared_counts).clip(min=0)
    return mean, (spread * inputs / max(inputs - 1, 1)) ** 0.5 / counts


def wilson(
    shares: Float[np.ndarray, " shares"], count: int
) -> tuple[Float[np.ndarray, " shares"], Float[np.ndarray, " shares"]]:
    """Return the bounds of the 95 % intervals of shares of ``count`` independent trials (Wilson,
    1927). scipy has that of one share only.
    """
    from scipy.special import ndtri

    z = ndtri(0.975)
    spread = z * np.sqrt(shares * (1 - shares) / count + z**2 / (4 * count**2))
    centre = shares + z**2 / (2 * count)
    scale = 1 + z**2 / count
    return ((centre - spread) / scale).clip(min=0), ((centre + spread) / scale).clip(max=1)


def over_examples(
    score: float, influences: Float[np.ndarray, " examples"], unit: float = 1.0
) -> Interval:
    """Return the interval over examples of a score without seeds; bounds of nan for one example."""
    return Interval.around(score, _half_over_examples(influences, len(influences), unit, 0.95))


def mean_over_examples(
    measure: str,
    values: Shaped[np.ndarray, " answers"],
    lengths: Int[np.ndarray, " examples"] | None = None,
) -> Interval:
    """Return the mean of values, numbers or booleans, with its interval over the examples that they
    belong to, ``lengths`` values to each, within the range of the measure. Numbers that are all
    equal have no bounds, as nobody knows their scale.
    """
    unit = 1.0 if values.dtype == bool else math.nan
    return clipped(measure, over_examples(*mean_of(values, lengths), unit))


def joint(scores: SeedScores) -> Interval:
    """Return the mean score and its interval over seeds and examples; bounds of nan for one of
    either.
    """
    seed_scores, influences = _paired(scores)[0]
    return _joint(seed_scores, influences, scores.unit)


def clipped(metric: str, interval: Interval) -> Interval:
    """Return the interval of a score or measure, limited to the range of the metric."""
    lowest, highest = _RANGES.get(metric, _UNBOUNDED if is_custom_metric(metric) else (0.0, 1.0))
    return Interval(interval.mean, max(interval.low, lowest), min(interval.high, highest))


def difference(
    first: SeedScores,
    second: SeedScores,
    confidence: float = 0.95,
    *,
    rule_of_three: bool = True,
    deviation: float = 0.0,
) -> Interval:
    """Return the first mean score less the second, paired by seed and example.

    Numbers of examples that differ mean other examples: the variances over them are then added. The
    bounds are nan for one seed or example; everything is nan if no seed is in both.

    By the ``rule_of_three`` the interval allows for differences that none of the examples shows
    (``_half_over_examples``): it is needed for an interval of the difference's size, not for a test
    whether there is any. ``deviation`` is another standard deviation of the difference, such as
    that of single lists of heads, estimated from as many draws as there are seeds.
    """
    pair = _paired(first, second)
    if not pair:
        return NOT_KNOWN
    (first_scores, first_influences), (second_scores, second_influences) = pair
    if len(first_influences) == len(second_influences):
        effects = first_influences - second_influences
    else:
        effects = np.concatenate(
            [
                first_influences - first_influences.mean(),
                second_influences - second_influences.mean(),
            ]
        )
    rows = min(len(first_influences), len(second_influences))
    unit = first.unit if rule_of_three else 0.0
    return _joint(first_scores - second_scores, effects, unit, rows, confidence, deviation)


def deviation_of_lists(random: SeedScores, fixed: Sequence[SeedScores]) -> float:
    """Return the standard deviation of the scores of random lists of heads; nan for one seed.

    Every seed draws one random list; from its score the mean score of the orders with ``fixed``
    lists is subtracted, which removes what seeds share.
    """
    differences = [
        score - np.mean([order.scores[seed] for order in fixed])
        for seed, score in random.scores.items()
        if all(seed in order.scores for order in fixed)
    ]
    return float(np.std(differences, ddof=1)) if len(differences) > 1 else math.nan


def paired_drop(original: SeedScores, replaced: SeedScores, confidence: float = 0.95) -> Interval:
    """Return the relative drop, (s₁ - s_f) / |s₁|, of mean scores over the seeds that both have.

    The interval is that of a ratio of means, linearised. Its bounds are nan for one seed or
    example; everything is nan if no seed is in both, or if half the width of the original's
    interval is more than half its score: a ratio by a number near 0 has no useful interval.
    """
    pair = _paired(original, replaced)
    if not pair:
        return NOT_KNOWN
    (original_scores, original_influences), (replaced_scores, replaced_influences) = pair
    full = _joint(original_scores, original_influences, original.unit)
    size = abs(full.mean)
    if not size > _ZERO or full.high - full.mean > size / 2:
        return NOT_KNOWN
    drop = float((original_scores - replaced_scores).mean()) / size
    # The derivative of the ratio s_f / s₁ by s₁ is -s_f / s₁²: an original's score counts by the
    # share of it that remains.
    remaining = 1 - math.copysign(1.0, full.mean) * drop
    over_seeds = (remaining * original_scores - replaced_scores) / size + drop
    effects = (remaining * original_influences - replaced_influences) / size
    return _joint(over_seeds, effects, original.unit / size, confidence=confidence)


def _paired(
    *scores_of_cells: SeedScores,
) -> list[tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " rows"]]]:
    """Return of each cell the scores of the seeds that all cells have, and the influence of
    examples on their mean; an empty list if there is no such seed.
    """
    seeds = [
        seed
        for seed in scores_of_cells[0].scores
        if all(seed in cell.scores for cell in scores_of_cells)
    ]
    if not seeds:
        return []
    return [
        (
            np.array([cell.scores[seed] for seed in seeds]),
            np.mean([cell.influence[seed] for seed in seeds], axis=0),
        )
        for cell in scores_of_cells
    ]


def _joint(
    scores: Float[np.ndarray, " seeds"],
    influences: Float[np.ndarray, " examples"],
    unit: float,
    rows: int | None = None,
    confidence: float = 0.95,
    deviation: float = 0.0,
) -> Interval:
    """Return the interval of the mean of scores, given the influences of ``rows`` examples."""
    over_seeds = interval(scores.tolist(), confidence)
    half_over_seeds = over_seeds.high - over_seeds.mean
    half_over_examples = _half_over_examples(influences, rows or len(influences), unit, confidence)
    half_of_deviation = _t(len(scores), confidence) * deviation if deviation else 0.0
    # Independent sources of error: their squares add up.
    half = math.hypot(half_over_seeds, half_over_examples, half_of_deviation)
    return Interval.around(over_seeds.mean, half)


def _half_over_examples(
    influences: Float[np.ndarray, " examples"], rows: int, unit: float, confidence: float
) -> float:
    """Return half the width of the interval over examples; nan for one example.

    The jackknife's and ``unit`` × 3.84/n (χ² at 95 %, one degree of freedom), the two-sided
    rule-of-three bound for n examples without a change, are added in quadrature. An unknown
    ``unit`` (nan) gives nan if no example shows a change, and no such bound otherwise.
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
    """Return (s₁ - s_f) / |s₁|, which is positive if the score got worse; nan if s₁ is 0."""
    return (full - score) / abs(full) if full else math.nan
