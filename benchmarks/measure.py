"""Timing two ways of the same work against each other, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Measured:
    """One line of the table.

    Attributes:
        name: the work.
        ours, plain: median seconds (or megabytes, FLOP/s), as ``unit`` says.
        ratio: the median of the pairs' ratios plain / ours.
        target: the least ratio that is asked for.
        unit: of ``ours`` and ``plain``.
    """

    name: str
    ours: float
    plain: float
    ratio: float
    target: float
    unit: str = "s"


def in_turn(name: str, ours: Work, plain: Work, *, target: float, repeats: int = 3, scale: float = 1.0) -> Measured:
    """Run ours, plain, ours, plain, … after one warm-up of each; the ratio is the median over pairs.

    Args:
        name: the work.
        ours, plain: the two ways.
        target: the least ratio asked for.
        repeats: pairs.
        scale: how often the plain way would have to do what ``plain`` does once (epochs × seeds, say).
    """
    ours(), plain()
    pairs = [(seconds(ours), seconds(plain) * scale) for _ in range(repeats)]
    return Measured(
        name=name,
        ours=statistics.median(pair[0] for pair in pairs),
        plain=statistics.median(pair[1] for pair in pairs),
        ratio=statistics.median(pair[1] / pair[0] for pair in pairs),
        target=target,
    )


def seconds(work: Work) -> float:
    """How long one run takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
