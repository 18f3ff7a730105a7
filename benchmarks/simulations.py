"""How often what PAPA says beyond chance is wrong, where the truth is known.

``python -m benchmarks.simulations shapley``: how often the interval of a Shapley value by one seed
covers it. ``… orders``: in how many families of orders that know nothing any has a ``*``. ``…
lambda`` (minutes): what λ of five seeds tells of true, shuffled and random labels.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.setting import described, encoder, tokenised
from papa.attention.average import average_split
from papa.ranking.learned import train_lambda
from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.ranking.sets import shapley_values
from papa.scores.intervals import Measured, deviation_of_lists, holm, p_value
from papa.spec import RankingSpec
from papa.spec.orders import Head

ROWS, SEEDS = 150, range(5)


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
        value = partial(_worth, worth)
        values, error, count = shapley_values(value, heads, most, seed=game, tolerance=0)
        low, high = HeadScores(values[None], error, count).interval
        held.append((low <= truth) & (truth <= high))
    return float(np.mean(held))


def _worth(worth: Mapping[frozenset[Head], float], kept: Set[Head]) -> float:
    return sum(number for own, number in worth.items() if own <= kept)


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
        correct = (hard + noise < 0.8 + np.array(shares)[:, None]).astype(float)
        examples = np.stack([correct, np.ones_like(correct)], axis=-1)
        scores = dict(enumerate(correct.mean(axis=1).tolist()))
        found.append(Measured.of("accuracy", scores, list(examples)))
    return found


def starred(found: list[Measured]) -> tuple[bool, bool]:
    """Whether any order has a ``*`` beside random ones, the last, and whether any other pair has
    (``papa.scores.orders.compare_orders``).
    """
    *fixed, random = found
    spread = deviation_of_lists(random, fixed)
    with_random = [p_value(one, random, spread) for one in fixed]
    others = [p_value(*pair, spread * math.sqrt(2)) for pair in combinations(fixed, 2)]
    return min(holm(with_random)) < 0.05, min(holm(others)) < 0.05


def print_lambdas() -> None:
    """λ of five seeds with true labels, and with random ones that are the same for every seed."""
    model, ranking = encoder(), RankingSpec(rows=96, learning_rate=5e-3)
    for own, count in ((True, 480), (False, 96)):
        task = described({"name": "reviews", "train_rows": count})
        with tempfile.TemporaryDirectory() as at:
            corpus = tokenised(task, Path(at))
            split, control = corpus.split("train"), dict[int, np.ndarray]()
            average = average_split(model, split, slots=task.slots, batch_tokens=4096).average()
            for labels, by in (("shuffled", SEEDS), ("true", [None] * 5), ("random", [9] * 5)):
                texts = [replace(corpus, shuffled=one) for one in by]
                found = {
                    seed: train_lambda(model, average, text, task, ranking, seed=seed).numpy()
                    for seed, text in zip(SEEDS, texts, strict=True)
                }
                trained = TrainedLambda(found, own, control)
                alike = trained.agreement()
                print(f"own rows {own}, {labels} labels: {alike}, control {trained.control}")
                control = control or found


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("shapley", "orders", "lambda"))
    what = parser.parse_args().what
    if what == "shapley":
        for draws in range(2, 15, 2):
            print(f"{draws} draws: {coverage(draws, games=400):.3f} of true values covered")
    elif what == "orders":
        numbers = np.random.default_rng(0)
        told = np.mean([starred(lists_of_noise(numbers, 11)) for _ in range(200)], axis=0)
        print(f"any * beside random orders: {told[0]:.3f}, in any other pair: {told[1]:.3f}")
    else:
        print_lambdas()


if __name__ == "__main__":
    main()
