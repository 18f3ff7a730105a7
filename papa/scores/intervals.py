"""Intervals over seeds and validation examples together (paper, Sections 4.1 and 4.2), as
docs/results.md says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from papa.scores.levels import CONFIDENCE
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
    """A value with the bounds of its interval; nan where there is none."""

    mean: float
    low: float
    high: float

    @classmethod
    def around(cls, mean: float, half: float) -> Interval:
        """Return the interval of a value with this half-width."""
        return cls(float(mean), float(mean) - half, float(mean) + half)


NOT_KNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class SeedScores:
    """The scores of a cell or a baseline by seed, with each validation example's influence.

    Attributes:
        influence: by seed what the score loses without each example.
        example_unit: n times the largest change that one example in n can make, for the rule of
            three; nan if there is no such bound.
    """

    scores: Mapping[int, float]
    influence: Mapping[int, Float[np.ndarray, " rows"]]
    example_unit: float = 1.0


def example_unit(metric: str) -> float:
    """Return the ``SeedScores.example_unit`` of a metric: nan for a loss and a cosine, which are
    continuous, and for custom metrics.
    """
    return math.nan if is_custom_metric(metric) or metric in _CONTINUOUS else 1.0


def interval_over_seeds(scores: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return Student's t interval of the mean of independent scores; bounds of nan for one."""
    count = len(scores)
    mean = math.fsum(scores) / count
    if count == 1:
        return Interval.around(mean, math.nan)
    variance = math.fsum((value - mean) ** 2 for value in scores) / (count - 1)
    half = t_quantile(count, (1 + confidence) / 2) * math.sqrt(variance / count)
    return Interval.around(mean, half)


def t_quantile(count: int, probability: float = (1 + CONFIDENCE) / 2) -> float:
    """Return a quantile of Student's t of the mean of ``count`` values, in standard errors; nan for
    one value.
    """
    # scipy takes half a second to import, which a command that reads stored tables does without.
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, probability))


def ratio_with_error(
    examples: int,
    sums: Float[np.ndarray, "*shape"],
    squares: Float[np.ndarray, "*shape"],
    products: Float[np.ndarray, "*shape"],
    counts: np.ndarray | np.floating,
    squared_counts: np.ndarray | np.floating,
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Return Σs / Σn over examples and its linearised standard error, which is 0 for one example.

    Args:
        examples: The number of examples.
        sums: Σs, of the sum s of an example's values.
        squares: Σs².
        products: Σsn.
        counts: Σn, of the number n of an example's values: [*shape], or a scalar for all.
        squared_counts: Σn², likewise.
    """
    mean = sums / counts
    spread = (squares - 2 * mean * products + mean**2 * squared_counts).clip(min=0)
    return mean, (spread * examples / max(examples - 1, 1)) ** 0.5 / counts


def wilson(
    shares: Float[np.ndarray, " shares"], count: int
) -> tuple[Float[np.ndarray, " shares"], Float[np.ndarray, " shares"]]:
    """Return the bounds of the 95 % intervals of shares of ``count`` independent trials (Wilson,
    1927). scipy has that of one share only.
    """
    from scipy.special import ndtri

    z = ndtri((1 + CONFIDENCE) / 2)
    spread = z * np.sqrt(shares * (1 - shares) / count + z**2 / (4 * count**2))
    centre = shares + z**2 / (2 * count)
    scale = 1 + z**2 / count
    return ((centre - spread) / scale).clip(min=0), ((centre + spread) / scale).clip(max=1)


def over_examples(
    score: float, influences: Float[np.ndarray, " examples"], example_unit: float = 1.0
) -> Interval:
    """Return the interval over examples of a score without seeds; bounds of nan for one example."""
    half = _half_over_examples(influences, len(influences), example_unit, CONFIDENCE)
    return Interval.around(score, half)


def mean_over_examples(
    measure: str,
    values: Shaped[np.ndarray, " answers"],
    lengths: Int[np.ndarray, " examples"] | None = None,
) -> Interval:
    """Return the mean of values, numbers or booleans, with its interval over the examples that they
    belong to, ``lengths`` values to each, within the range of the measure. Numbers that are all
    equal have no bounds, as nobody knows their scale.
    """
    example_unit = 1.0 if values.dtype == bool else math.nan
    return clipped(measure, over_examples(*mean_of(values, lengths), example_unit))


def interval_over_seeds_and_examples(scores: SeedScores) -> Interval:
    """Return the mean score and its interval over seeds and examples; bounds of nan for one of
    either.
    """
    seed_scores, influences = _paired(scores)[0]
    return _combined_interval(seed_scores, influences, scores.example_unit)


def clipped(metric: str, interval: Interval) -> Interval:
    """Return the interval of a score or measure, limited to the range of the metric."""
    lowest, highest = _RANGES.get(metric, _UNBOUNDED if is_custom_metric(metric) else (0.0, 1.0))
    return Interval(interval.mean, max(interval.low, lowest), min(interval.high, highest))


def paired_difference(
    first: SeedScores,
    second: SeedScores,
    confidence: float = CONFIDENCE,
    *,
    rule_of_three: bool = True,
    extra_deviation: float = 0.0,
) -> Interval:
    """Return the first mean score less the second, paired by seed, and by example where both are of
    as many examples. The bounds are nan for one seed or example; everything is nan if no seed is in
    both.

    Args:
        first: The scores of one cell or baseline.
        second: Those of another.
        confidence: Of the interval.
        rule_of_three: Whether the interval allows for differences that none of the examples shows
            (``_half_over_examples``): an interval of the difference's size must, a test whether
            there is any must not.
        extra_deviation: Another standard deviation of the difference, such as that of single lists
            of heads, estimated from as many draws as there are seeds.
    """
    scores_and_influences = _paired(first, second)
    if not scores_and_influences:
        return NOT_KNOWN
    (first_scores, first_influences), (second_scores, second_influences) = scores_and_influences
    if len(first_influences) == len(second_influences):
        effects = first_influences - second_influences
    else:
        # Of different examples the centred influences of both: their variances add.
        centred = [values - values.mean() for values in (first_influences, second_influences)]
        effects = np.concatenate(centred)
    examples = min(len(first_influences), len(second_influences))
    example_unit = first.example_unit if rule_of_three else 0.0
    return _combined_interval(
        first_scores - second_scores, effects, example_unit, examples, confidence, extra_deviation
    )


def paired_drop(
    original: SeedScores, replaced: SeedScores, confidence: float = CONFIDENCE
) -> Interval:
    """Return the relative drop d = (s₁ - s_f) / |s₁| of mean scores over the seeds that both have.

    The interval is that of a ratio of means, linearised in s₁ and s_f. Its bounds are nan for one
    seed or example; everything is nan if no seed is in both, or if half the width of the original's
    interval is more than half its score: a ratio by a number near 0 has no useful interval.
    """
    scores_and_influences = _paired(original, replaced)
    if not scores_and_influences:
        return NOT_KNOWN
    (original_scores, original_influences), (scores, influences) = scores_and_influences
    mean = _combined_interval(original_scores, original_influences, original.example_unit)
    size = abs(mean.mean)
    # Written so that a score of nan is too uncertain, too.
    is_certain = size > _ZERO and not mean.high - mean.mean > size / 2
    if not is_certain:
        return NOT_KNOWN
    drop = float((original_scores - scores).mean()) / size
    # d by s₁ is s_f / (s₁·|s₁|), and by s_f -1 / |s₁|: an original's score counts by the share
    # s_f / s₁ of it that remains.
    remaining = 1 - math.copysign(1.0, mean.mean) * drop
    linearised_scores = (remaining * original_scores - scores) / size + drop
    effects = (remaining * original_influences - influences) / size
    example_unit = original.example_unit / size
    return _combined_interval(linearised_scores, effects, example_unit, confidence=confidence)


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


def _combined_interval(
    scores: Float[np.ndarray, " seeds"],
    influences: Float[np.ndarray, " influences"],
    example_unit: float,
    examples: int | None = None,
    confidence: float = CONFIDENCE,
    extra_deviation: float = 0.0,
) -> Interval:
    """Return the interval of the mean of scores, over seeds and over ``examples`` (default: as many
    as influences).
    """
    over_seeds = interval_over_seeds(scores.tolist(), confidence)
    half_over_seeds = over_seeds.high - over_seeds.mean
    half_over_examples = _half_over_examples(
        influences, examples or len(influences), example_unit, confidence
    )
    half_of_deviation = 0.0
    if extra_deviation:
        half_of_deviation = t_quantile(len(scores), (1 + confidence) / 2) * extra_deviation
    # Independent sources of error: their squares add up.
    half = math.hypot(half_over_seeds, half_over_examples, half_of_deviation)
    return Interval.around(over_seeds.mean, half)


def _half_over_examples(
    influences: Float[np.ndarray, " influences"],
    examples: int,
    example_unit: float,
    confidence: float,
) -> float:
    """Return half the width of the interval over examples; nan for one example.

    It combines two half-widths in quadrature: the jackknife's, and the two-sided rule-of-three
    bound for n examples without a change, ``example_unit`` × χ²/n, with 3.84 as χ² at 95 % and one
    degree of freedom. With an unknown unit (nan) the bound is left out; if then no example shows a
    change, the result is nan.
    """
    from scipy.special import chdtri

    if examples < 2:
        return math.nan
    squares = float(((influences - influences.mean()) ** 2).sum())
    deviation = math.sqrt((examples - 1) / examples * squares)
    half = t_quantile(examples, (1 + confidence) / 2) * deviation
    if math.isnan(example_unit) and deviation > 0:
        return half
    return math.hypot(half, example_unit * float(chdtri(1, 1 - confidence)) / examples)


def relative_drop(full: float, score: float) -> float:
    """Return (s₁ - s_f) / |s₁|, which is positive if the score got worse; nan if s₁ is 0."""
    return (full - score) / abs(full) if full else math.nan
