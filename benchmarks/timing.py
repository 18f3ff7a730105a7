"""Two ways of the same work measured in turn, so that a busy machine changes little.

Neighbours only ever slow a run down, so the least of many runs is what the work itself takes. Both
ways run in pairs whose order is drawn, for some seconds.
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
LEAST = 3
PATIENCE = 15.0
"""Pairs at the least, and seconds after which no further pair begins."""


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
    """Measure pairs until time is up. The interval is Student's t of the logarithms of the ratios
    within pairs.
    """
    # Not above: processes whose memory is measured import this file.
    from papa.scores.intervals import interval_over_seeds

    pairs = list[tuple[float, float]]()
    started = time.perf_counter()
    while len(pairs) < LEAST or time.perf_counter() - started < PATIENCE:
        pairs.append(pair())
    ours, plain = np.array(pairs).T
    ratio = interval_over_seeds(np.log(plain / ours).tolist())
    ends = float(np.exp(ratio.low)), float(np.exp(ratio.high))
    return Comparison(float(ours.min()), float(plain.min()), *ends, len(pairs), unit)


def seconds(work: Work) -> float:
    """Return how long one run takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
