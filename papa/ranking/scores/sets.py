"""Methods that value sets of heads: the effect of each head, a greedy order, Shapley values."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
from jaxtyping import Float

from papa.progress import Progress, ignore_progress
from papa.ranking.scores.asked import Asked, Scored, frozen_value
from papa.ranking.value import Value
from papa.spec.orders import Head

TOLERANCE = 0.01
"""Of v(all) - v(none): an order ends once what is left of it is worth less."""


def effect(asked: Asked) -> Scored:
    """v(all) - v(all without the head) of ``frozen_value``, in units of the loss (after Michel et
    al., 2019, Section 3.2): 0 for a head that is as good constant, below where it is better.
    """
    value = frozen_value(asked)
    heads, everyone = value.heads, frozenset(value.heads)
    whole, lost = value(everyone), dict.fromkeys(heads, 0.0)
    # From the last layer down: what is known of the layers below stays of use.
    for done, head in enumerate(reversed(heads), 1):
        lost[head] = whole - value(everyone - {head})
        asked.progress(done, len(heads))
    values = np.array([lost[head] for head in heads])
    return Scored(
        values.reshape(asked.encoder.layers, asked.encoder.heads), None, value.evaluations
    )


def greedy(asked: Asked) -> Scored:
    """The greedy order: at each step the head whose becoming constant costs least, while those of
    earlier steps are constant; a score is a place in it.
    """
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
        evaluations: how often v may be asked at most: ``ScoringMethod.least`` or more.
    """
    # The last step needs no choice; where evaluations are too few for any, all are one step.
    needed = {size: sum(range(len(heads), 1, -size)) for size in range(1, len(heads) + 1)}
    together = next((size for size in needed if needed[size] <= evaluations), len(heads))
    left: Set[Head] = frozenset(heads)
    places: dict[Head, int] = {}
    done, total = 0, needed[together]
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


def shapley(asked: Asked) -> Scored:
    """What heads add to the value of others, over all orders of joining (Held & Yang, 2022)."""
    value = frozen_value(asked)
    values, errors, draws = shapley_values(
        value,
        value.heads,
        asked.ranking.evaluations,
        seed=asked.seed,
        progress=asked.progress,
    )
    shape = asked.encoder.layers, asked.encoder.heads
    return Scored(values.reshape(shape), errors.reshape(shape), value.evaluations, draws)


def shapley_values(
    value: Value,
    heads: Sequence[Head],
    evaluations: int,
    *,
    seed: int,
    tolerance: float = TOLERANCE,
    progress: Progress = ignore_progress,
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], int]:
    """The Shapley value of every head, its standard error, and from how many draws it is.

    In an order heads become constant one after the other; what v loses is the share of that head.
    Orders are drawn, each with its reverse (antithetic sampling); such a pair gives one draw, and
    draws give the error. Where an order is cut short, as less than ``tolerance`` of v(all) -
    v(none) is left (Ghorbani & Zou, 2019, Section 3.2), that is divided among its last heads: in
    every order shares add up to v(all) - v(none).
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
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found)), len(found)
