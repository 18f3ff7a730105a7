"""Timing two ways of the same work against each other so that a busy machine changes no verdict.

Neighbours only ever slow a run down, so the least of many runs is what the work itself takes. Both
ways run in turn, in pairs whose order is drawn, until the interval of their ratio is narrow. It is
narrow once several runs of each came near the least: a resample of the pairs then hardly ever
misses them all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Work = Callable[[], object]
Pair = Callable[[], tuple[float, float]]
"""Measures both ways once: ours and plain, in seconds or megabytes."""

LEAST, ENOUGH, MOST = 3, 6, 40
"""Pairs of a row: the least where time is up, enough for a bootstrap, and the most."""
NARROW = 0.03
"""The width of an interval, as a share of its ratio, at which no more pairs are needed."""
PATIENCE = 15.0
"""Seconds after which the benchmarks begin no further pair, but for the least number."""


class Part(NamedTuple):
    """Work that is timed once and counted several times: some equal batches, or one epoch."""

    work: Work
    times: float = 1.0


@dataclass(frozen=True)
class Comparison:
    """Two ways of the same work: the least of all runs of each in ``unit``, the ratio plain / ours
    with its 95 % interval, and how often both were measured.
    """

    ours: float
    plain: float
    ratio: float
    low: float
    high: float
    pairs: int
    unit: str = "s"

    @property
    def narrow(self) -> bool:
        return self.high - self.low <= NARROW * self.ratio


def of_least(ours: np.ndarray, plain: np.ndarray, axis: int = -1) -> Any:
    """The ratio of the least run of each."""
    return plain.min(axis=axis) / ours.min(axis=axis)


def of_pairs(ours: np.ndarray, plain: np.ndarray, axis: int = -1) -> Any:
    """The median of the ratios within pairs: for machines that are never quiet."""
    return np.median(plain / ours, axis=axis)


Ratio = Callable[..., Any]
Clock = Callable[[], float]


def in_turn(
    ours: Work,
    *plain: Part,
    ratio: Ratio = of_least,
    clock: Clock = time.perf_counter,
    patience: float = PATIENCE,
) -> Comparison:
    """Time ours and plain in turn until the interval of their ratio is narrow.

    The plain way is best given as parts that take about as long as ours: the shorter of two runs
    finds a quiet moment more easily, and would be flattered.
    """
    drawn = random.Random(0)

    def pair() -> tuple[float, float]:
        # In a fixed order, a neighbour's rhythm could meet always the same way.
        if drawn.random() < 0.5:
            spent = seconds(ours, clock)
            return spent, in_all(plain, clock)
        plainly = in_all(plain, clock)
        return seconds(ours, clock), plainly

    return repeated(pair, ratio=ratio, clock=clock, patience=patience)


def repeated(
    pair: Pair,
    *,
    ratio: Ratio = of_least,
    unit: str = "s",
    clock: Clock = time.perf_counter,
    patience: float = PATIENCE,
) -> Comparison:
    """Measure pairs, in ``unit``, until the interval of their ratio is narrow, or there are enough
    of them, or time is up; the higher the ratio the better ours.
    """
    pairs, started = list[tuple[float, float]](), clock()
    while True:
        pairs.append(pair())
        time_is_up = clock() - started > patience
        if len(pairs) >= (LEAST if time_is_up else ENOUGH):
            found = compared(pairs, ratio, unit)
            if found.narrow or time_is_up or len(pairs) == MOST:
                return found


def compared(
    pairs: list[tuple[float, float]], ratio: Ratio = of_least, unit: str = "s"
) -> Comparison:
    """What pairs of runs say.

    The interval is the bootstrap's; fewer than six pairs support none at 95 %, and the ratios
    within pairs give it, by Student's t of their logarithms.
    """
    # Not above: processes whose memory is measured import this file.
    from scipy.stats import bootstrap

    from papa.scores.intervals import interval

    ours, plain = np.array(pairs).T
    found = float(ratio(ours, plain))
    if len(pairs) < ENOUGH:
        logarithms = interval(
            [float(np.log(ratio(pair[:1], pair[1:]))) for pair in np.array(pairs)]
        )
        low, high = np.exp([logarithms.low, logarithms.high])
    else:
        drawn = bootstrap(
            (ours, plain),
            ratio,
            paired=True,
            vectorized=True,
            n_resamples=1000,
            method="percentile",
            rng=np.random.default_rng(0),
        )
        low, high = drawn.confidence_interval
    return Comparison(
        ours=float(ours.min()),
        plain=float(plain.min()),
        ratio=found,
        low=min(found, float(low)),
        high=max(found, float(high)),
        pairs=len(pairs),
        unit=unit,
    )


def in_all(parts: tuple[Part, ...], clock: Clock = time.perf_counter) -> float:
    """How long the parts take, each as often as it counts."""
    return sum(times * seconds(work, clock) for work, times in parts)


def seconds(work: Work, clock: Clock = time.perf_counter) -> float:
    """How long one run takes."""
    started = clock()
    work()
    return clock() - started
