"""Means over seeds with their 95 % interval, and how far a score falls (paper, Sections 4.1 and 4.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval.

    Attributes:
        mean: the mean of the scores.
        low: lower end of the interval; nan for one seed.
        high: upper end of the interval; nan for one seed.
        seeds: how many scores it rests on.
    """

    mean: float
    low: float
    high: float
    seeds: int


def interval(scores: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval of the mean of independent scores.

    One score says nothing of its spread: its interval is nan, never a width of zero.

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
