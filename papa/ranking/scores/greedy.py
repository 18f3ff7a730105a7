"""Heads by greedy choice: at each step the one whose becoming constant costs least, while those of
earlier steps are constant.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
from jaxtyping import Float

from papa.progress import Progress, ignore_progress
from papa.ranking.scores.asked import Asked, Scored
from papa.ranking.value import Value, frozen_value
from papa.spec.methods import greedy_evaluations, greedy_step
from papa.spec.orders import Head


def score(asked: Asked) -> Scored:
    """The greedy order of the game that ``frozen_value`` gives; a score is a place in it."""
    value = frozen_value(asked)
    places = greedy_places(value, value.heads, asked.ranking.evaluations, asked.progress)
    shape = asked.encoder.layers, asked.encoder.heads
    return Scored(places.reshape(shape), None, value.evaluations)


def greedy_places(
    value: Value,
    heads: Sequence[Head],
    evaluations: int,
    progress: Progress = ignore_progress,
) -> Float[np.ndarray, " heads"]:
    """The place of every head in the order in which they become constant, from 0.

    Where there are too few evaluations to choose one head at each step, several become constant
    together, as few as evaluations allow and the cheapest first.

    Args:
        evaluations: how often v may be asked at most: enough by ``check_evaluations``.
    """
    together = greedy_step(len(heads), evaluations)
    left: Set[Head] = frozenset(heads)
    places: dict[Head, int] = {}
    done, total = 0, greedy_evaluations(len(heads), together)
    while left:
        costs = dict.fromkeys(left, 0.0)
        if len(left) > 1:
            # From the last layer down: what is known of the layers below stays of use.
            for head in sorted(left, reverse=True):
                costs[head] = -value(left - {head})
                done += 1
                progress(done, total)
        cheapest = sorted(left, key=lambda head: (costs[head], head))[:together]
        places |= {head: len(places) + position for position, head in enumerate(cheapest)}
        left = left - {*cheapest}
    return np.array([places[head] for head in heads], dtype=np.float64)
