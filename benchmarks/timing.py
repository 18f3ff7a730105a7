"""Two ways of the same work measured in turn, so that a busy machine changes little.

Neighbours only ever slow a run down, so the least of many runs is what the work itself takes. Both
ways run in pairs whose order is drawn, until the interval of their ratio is narrow.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Work = Callable[[], object]
Pair = Callable[[], tuple[float, float]]
"""Measures both ways once: ours and plain, in seconds or megabytes."""
LEAST, ENOUGH, MOST = 3, 6, 40
"""Pairs of a row: the least where time is up, enough for a bootstrap, and the most."""
NARROW, PATIENCE = 0.03, 15.0
"""The width of an interval, as a share of its ratio, at which no more pairs are needed; and seconds
after which no further pair begins, but for the least number.
"""


class Part(NamedTuple):
    """Work that is timed once and counted several times: some equal batches, or one epoch."""

    work: Work
    times: float = 1.0


@dataclass(frozen=True)
class Comparison:
    """The least of all runs of each way in ``unit``, and the ratio plain / ours with its 95 %
    interval.
    """

    ours: float
    plain: float
    low: float
    high: float
    pairs: int
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return self.plain / self.ours


class Row(NamedTuple):
    """A line of the table: the word that asks for it, the work, and what measures it."""

    group: str
    name: str
    measure: Callable[[], Comparison]


def in_turn(ours: Work, *plain: Part) -> Comparison:
    """Time ours and plain in turn.

    The plain way is best given as parts that take about as long as ours: the shorter of two runs
    finds a quiet moment more easily, and would be flattered.
    """
    drawn = random.Random(0)

    def pair() -> tuple[float, float]:
        # In a fixed order, a neighbour's rhythm could meet always the same way.
        first = seconds(ours) if drawn.random() < 0.5 else None
        others = sum(times * seconds(work) for work, times in plain)
        return seconds(ours) if first is None else first, others

    return repeated(pair)


def repeated(pair: Pair, unit: str = "s") -> Comparison:
    """Measure pairs until the interval of their ratio is narrow, or time is up."""
    pairs, started = list[tuple[float, float]](), time.perf_counter()
    while True:
        pairs.append(pair())
        time_is_up = time.perf_counter() - started > PATIENCE
        if len(pairs) >= (LEAST if time_is_up else ENOUGH):
            found = compared(pairs, unit)
            narrow = found.high - found.low <= NARROW * found.ratio
            if narrow or time_is_up or len(pairs) == MOST:
                return found


def compared(pairs: list[tuple[float, float]], unit: str) -> Comparison:
    """What pairs say. The interval is the bootstrap's; fewer than six pairs support none at 95 %,
    and the ratios within pairs give it, by Student's t of their logarithms.
    """
    # Not above: processes whose memory is measured import this file.
    from scipy.stats import bootstrap

    from papa.scores.intervals import interval

    ours, plain = np.array(pairs).T
    if len(pairs) < ENOUGH:
        logarithms = interval(np.log(plain / ours).tolist())
        low, high = np.exp([logarithms.low, logarithms.high])
    else:

        def of_least(ours: np.ndarray, plain: np.ndarray, axis: int) -> np.ndarray:
            return plain.min(axis=axis) / ours.min(axis=axis)

        options = {"paired": True, "vectorized": True, "method": "percentile"}
        found = bootstrap((ours, plain), of_least, **options, rng=np.random.default_rng(0))
        low, high = found.confidence_interval
    least = float(ours.min()), float(plain.min())
    return Comparison(*least, float(low), float(high), len(pairs), unit)


def seconds(work: Work) -> float:
    """How long one run takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
