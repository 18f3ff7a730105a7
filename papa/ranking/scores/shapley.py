"""Shapley values of heads: what a head adds to the value of others, over all orders of joining them
(Held & Yang, 2022).

Orders are drawn, each with its reverse (antithetic sampling), and cut short once the heads that are
left are worth next to nothing (Ghorbani & Zou, 2019, Section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
from jaxtyping import Float

from papa.progress import Progress, ignore_progress
from papa.ranking.scores.asked import Asked, Scored
from papa.ranking.value import Value, frozen_value
from papa.spec.orders import Head

TOLERANCE = 0.01
"""Of v(all) - v(none): an order ends once what is left of it is worth less."""


def score(asked: Asked) -> Scored:
    """Shapley values of the game that ``frozen_value`` gives."""
    value = frozen_value(asked)
    values, errors = shapley_values(
        value,
        value.heads,
        asked.ranking.evaluations,
        seed=asked.seed,
        progress=asked.progress,
    )
    shape = asked.encoder.layers, asked.encoder.heads
    return Scored(values.reshape(shape), errors.reshape(shape), value.evaluations)


def shapley_values(
    value: Value,
    heads: Sequence[Head],
    evaluations: int,
    *,
    seed: int,
    tolerance: float = TOLERANCE,
    progress: Progress = ignore_progress,
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """The Shapley value of every head and its standard error.

    In an order heads become constant one after the other; what v loses is the share of that head. A
    pair of orders gives one draw, and draws give the error. Where an order is cut short, as less
    than ``tolerance`` of v(all) - v(none) is left, that is divided among its last heads: in every
    order shares add up to v(all) - v(none).
    """
    everyone, generator = frozenset(heads), np.random.default_rng(seed)
    best, worst = value(everyone), value(frozenset[Head]())
    done, draws = 2, list[Float[np.ndarray, " heads"]]()
    while done + 2 * (len(heads) - 1) <= evaluations and len(draws) < evaluations:
        order, shares = generator.permutation(len(heads)), np.zeros(len(heads))
        for walk in (order, order[::-1]):
            left: Set[Head] = everyone
            before = best
            for step, index in enumerate(walk):
                if index == walk[-1] or abs(before - worst) < tolerance * abs(best - worst):
                    shares[walk[step:]] += (before - worst) / (len(walk) - step)
                    break
                left = left - {heads[index]}
                after = value(left)
                shares[index] += before - after
                before, done = after, done + 1
                progress(done, evaluations)
        draws.append(shares / 2)
    progress(evaluations, evaluations)
    found = np.stack(draws)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found))
