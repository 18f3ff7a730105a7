"""Intervals: means over seeds and how far a score falls (paper, Sections 4.1 and 4.2), and the bootstrap over
validation examples. Those over examples do not cover the variance over seeds, nor those over seeds that over examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from papa.scores.examples import scores_of_resamples
from papa.spec import Metric


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval.

    Attributes:
        mean: the mean of the scores.
        low: lower end of the interval; nan for one seed.
        high: upper end of the interval; nan for one seed.
        seeds: how many scores it is computed from.
    """

    mean: float
    low: float
    high: float
    seeds: int


def interval(scores: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval of the mean of independent scores.

    One score has no spread: its interval is nan, never a width of zero.

    Raises:
        ValueError: there are no scores.
    """
    count = len(scores)
    if count == 0:
        raise ValueError("an interval needs at least one score, found none")
    mean = math.fsum(scores) / count
    if count == 1:
        return Interval(mean=mean, low=math.nan, high=math.nan, seeds=1)
    from scipy.stats import t

    variance = math.fsum((value - mean) ** 2 for value in scores) / (count - 1)
    half = float(t.ppf((1 + confidence) / 2, count - 1)) * math.sqrt(variance / count)
    return Interval(mean=mean, low=mean - half, high=mean + half, seeds=count)


def paired_drop(originals: Mapping[int, float], scores: Mapping[int, float]) -> Interval:
    """The relative drop, (s₁ - s_f) / |s₁|, with an interval of its own from differences paired by seed.

    A seed fixes the probe's start and the order of its rows, so the two scores of a seed go up and down together and
    their differences vary less than either. The mean difference and its Student t interval are divided by the size of
    the mean original score, which the interval takes as given.

    Args:
        originals: s₁ of each seed.
        scores: s_f of each seed; only seeds that both have are used.

    Returns:
        The drop; its ends are nan for one seed, everything is nan for none or where the mean of s₁ is 0.
    """
    seeds = [seed for seed in originals if seed in scores]
    if not seeds:
        return Interval(mean=math.nan, low=math.nan, high=math.nan, seeds=0)
    difference = interval([originals[seed] - scores[seed] for seed in seeds])
    size = abs(math.fsum(originals[seed] for seed in seeds) / len(seeds))
    if size == 0 or math.isnan(size):
        return Interval(mean=math.nan, low=math.nan, high=math.nan, seeds=len(seeds))
    return Interval(difference.mean / size, difference.low / size, difference.high / size, len(seeds))


def relative_drop(full: float, score: float) -> float:
    """(s₁ - s_f) / s₁: the share of the full model's score that is lost.

    Args:
        full: s₁, the score with every head input-dependent.
        score: s_f, the score with a fraction f of the heads input-dependent.

    Returns:
        The drop; negative where the score rose; nan where ``full`` is 0 or not a number. A negative s₁
        (negative log-perplexity) is divided by its size, so that a positive drop always means a worse
        score.
    """
    if full == 0 or math.isnan(full) or math.isnan(score):
        return math.nan
    return (full - score) / abs(full)


RESAMPLES = 1000
_DRAWN_AT_ONCE = 2**20
"""Examples drawn at a time: 8 MiB for each array of that size."""


@dataclass(frozen=True)
class OverExamples:
    """95 % percentile intervals over validation examples, seeds held fixed; nan where there is none.

    Attributes:
        score: of the mean over seeds.
        drop: of its relative drop, original and cell on the same resampled examples.
    """

    score: tuple[float, float]
    drop: tuple[float, float]


def over_examples(
    metric: Metric,
    cells: Sequence[Float[np.ndarray, "seeds rows k"]],
    original: int | None,
    *,
    confidence: float = 0.95,
) -> list[OverExamples]:
    """Bootstrap the cells of one encoder on one task; all of them see the same resamples.

    Args:
        metric: the task's.
        cells: what each example adds, seed by seed (``papa.scores.examples``); rows are the same examples in all.
        original: which cell has every head input-dependent; None where the study lacks it.
        confidence: the share of resamples inside the interval.

    Returns:
        One for each cell. With fewer than two examples there is nothing to resample and every end is nan; where some
        resample's original score is 0, or there is no original, those of the drop are.
    """
    from scipy.stats import bootstrap

    rows = cells[0].shape[1]
    if rows < 2:
        return [OverExamples((math.nan, math.nan), (math.nan, math.nan)) for _ in cells]
    seeds = np.cumsum([len(cell) for cell in cells])[:-1]
    examples = np.concatenate(cells).transpose(1, 0, 2)

    def statistic(drawn: Int[np.ndarray, "resamples rows"], axis: int) -> Float[np.ndarray, "two cells resamples"]:
        by_seed = np.split(scores_of_resamples(metric, examples, np.atleast_2d(drawn)), seeds, axis=1)
        scores = np.stack([of_cell.mean(axis=1) for of_cell in by_seed])
        both = np.stack([scores, _drops(scores, original)])
        return both if drawn.ndim > 1 else both[..., 0]

    resampled = bootstrap(
        (np.arange(rows),),
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, _DRAWN_AT_ONCE // rows),
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    ends = np.stack([resampled.confidence_interval.low, resampled.confidence_interval.high], axis=-1)
    if original is None or (resampled.bootstrap_distribution[0, original] == 0).any():
        ends[1] = math.nan
    return [
        OverExamples(score=(float(low), float(high)), drop=(float(drop_low), float(drop_high)))
        for (low, high), (drop_low, drop_high) in zip(*ends, strict=True)
    ]


def _drops(scores: Float[np.ndarray, "cells resamples"], original: int | None) -> np.ndarray:
    """Relative drops; 0 where there is none, since SciPy warns of nan."""
    if original is None:
        return np.zeros_like(scores)
    full = scores[original]
    return np.divide(full - scores, np.abs(full), out=np.zeros_like(scores), where=full != 0)
