"""Intervals over validation examples: the bootstrap. They say nothing of seeds, as those over seeds say nothing of
other examples; each is named for what it is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from papa.scores.examples import scores_of_resamples
from papa.spec import Metric

RESAMPLES = 1000
_DRAWN_AT_ONCE = 2**20
"""Examples drawn at a time: 8 MiB for each array of that size."""


@dataclass(frozen=True)
class OverExamples:
    """95 % percentile intervals over validation examples, seeds held fixed; nan where there is none.

    Attributes:
        score: of the mean over seeds.
        drop: of its relative drop, original and point on the same resampled examples.
    """

    score: tuple[float, float]
    drop: tuple[float, float]


def over_examples(
    metric: Metric,
    points: Sequence[Float[np.ndarray, "seeds rows k"]],
    original: int | None,
    *,
    confidence: float = 0.95,
) -> list[OverExamples]:
    """Bootstrap the points of one encoder on one task; all of them see the same resamples.

    Args:
        metric: the task's.
        points: what each example adds, seed by seed (``papa.scores.examples``); rows are the same examples in all.
        original: which point has every head input-dependent; None where the study lacks it.
        confidence: the share of resamples inside the interval.

    Returns:
        One a point. With fewer than two examples there is nothing to resample and every end is nan; where some
        resample's original score is 0, or there is no original, those of the drop are.
    """
    from scipy.stats import bootstrap

    rows = points[0].shape[1]
    if rows < 2:
        return [OverExamples((math.nan, math.nan), (math.nan, math.nan)) for _ in points]
    seeds = np.cumsum([len(point) for point in points])[:-1]
    examples = np.concatenate(points).transpose(1, 0, 2)

    def statistic(drawn: Int[np.ndarray, "resamples rows"], axis: int) -> Float[np.ndarray, "two points resamples"]:
        by_seed = np.split(scores_of_resamples(metric, examples, np.atleast_2d(drawn)), seeds, axis=1)
        scores = np.stack([of_point.mean(axis=1) for of_point in by_seed])
        found = np.stack([scores, _drops(scores, original)])
        return found if drawn.ndim > 1 else found[..., 0]

    found = bootstrap(
        (np.arange(rows),),
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, _DRAWN_AT_ONCE // rows),
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    ends = np.stack([found.confidence_interval.low, found.confidence_interval.high], axis=-1)
    if original is None or (found.bootstrap_distribution[0, original] == 0).any():
        ends[1] = math.nan
    return [
        OverExamples(score=(float(low), float(high)), drop=(float(drop_low), float(drop_high)))
        for (low, high), (drop_low, drop_high) in zip(*ends, strict=True)
    ]


def _drops(scores: Float[np.ndarray, "points resamples"], original: int | None) -> np.ndarray:
    """Relative drops; 0 where there is none, since SciPy warns of nan."""
    if original is None:
        return np.zeros_like(scores)
    full = scores[original]
    return np.divide(full - scores, np.abs(full), out=np.zeros_like(scores), where=full != 0)
