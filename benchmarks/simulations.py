"""How often what PAPA says beyond chance is wrong, where the truth is known.

``python -m benchmarks.simulations shapley``: how often the interval of a Shapley value by one seed
covers it. ``… orders``: in how many families of orders that know nothing any has a ``*``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Set
from itertools import combinations

import numpy as np

from papa.ranking.seeds import HeadScores
from papa.ranking.sets import shapley_values
from papa.scores.intervals import Measured, deviation_of_lists, holm, p_value
from papa.spec.orders import Head

ROWS = 150


def coverage(draws: int, games: int) -> float:
    """The share of true values inside the interval of one seed, over games of six heads, in which
    every set of heads adds a number of its own.
    """
    heads: list[Head] = [(layer, head) for layer in range(2) for head in range(3)]
    sets = [frozenset(own) for size in range(1, 7) for own in combinations(heads, size)]
    held = []
    for game in range(games):
        worth = dict(zip(sets, np.random.default_rng(game).normal(size=len(sets)), strict=True))
        # Heads of a set have equal shares of its number.
        truth = [sum(worth[own] / len(own) for own in sets if head in own) for head in heads]
        most = 2 + 2 * (len(heads) - 1) * draws

        def value(kept: Set[Head], worth: Mapping[frozenset[Head], float] = worth) -> float:
            return sum(number for own, number in worth.items() if own <= kept)

        values, error, count = shapley_values(value, heads, most, seed=game, tolerance=0)
        low, high = HeadScores(values[None], error, count).interval
        held.append((low <= truth) & (truth <= high))
    return float(np.mean(held))


def lists_of_noise(
    numbers: np.random.Generator, fixed: int, seeds: int = 5, over_lists: float = 0.1
) -> list[Measured]:
    """Accuracies of ``fixed`` orders of one list each, and of random ones, which draw a list for
    each seed: lists differ, and no order knows anything.
    """
    hard, found = numbers.normal(size=ROWS), []
    answers = numbers.normal(size=(fixed + seeds, ROWS))
    for number in range(fixed + 1):
        lists = [number] * seeds if number < fixed else range(fixed, fixed + seeds)
        shares = [over_lists * answers[at, :3].sum() for at in lists]
        noise = 0.5 * answers[lists] + 0.3 * numbers.normal(size=(seeds, ROWS))
        found.append(hits(hard + noise < 0.8 + np.array(shares)[:, None]))
    return found


def hits(correct: np.ndarray) -> Measured:
    """The accuracy of right and wrong answers, bool [seeds, rows]."""
    examples = np.stack([correct.astype(float), np.ones_like(correct, float)], axis=-1)
    return Measured.of("accuracy", dict(enumerate(correct.mean(axis=1).tolist())), list(examples))


def starred(found: list[Measured]) -> tuple[bool, bool]:
    """Whether any order has a ``*`` beside random ones, the last, and whether any other pair has
    (``papa.scores.orders.compare_orders``).
    """
    *fixed, random = found
    spread = deviation_of_lists(random, fixed)
    with_random = [p_value(one, random, spread) for one in fixed]
    others = [p_value(*pair, spread * math.sqrt(2)) for pair in combinations(fixed, 2)]
    return min(holm(with_random)) < 0.05, min(holm(others)) < 0.05


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("shapley", "orders"))
    what = parser.parse_args().what
    if what == "shapley":
        for draws in range(2, 15, 2):
            print(f"{draws} draws: {coverage(draws, games=400):.3f} of true values covered")
    else:
        numbers = np.random.default_rng(0)
        told = np.mean([starred(lists_of_noise(numbers, 11)) for _ in range(200)], axis=0)
        print(f"any * beside random orders: {told[0]:.3f}, in any other pair: {told[1]:.3f}")


if __name__ == "__main__":
    main()
