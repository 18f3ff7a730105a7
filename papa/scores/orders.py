"""Head orders compared, every two of them: their scores, and how alike they are; and how alike
orders by several seeds are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas
from jaxtyping import Float

from papa.scores.intervals import (
    Measured,
    clipped,
    deviation_of_lists,
    difference,
    holm,
    joint,
    p_value,
)
from papa.scores.summary import LINE, ends_of, measured
from papa.spec.orders import Head

LEVEL, DRAWS = 0.05, 1999
"""The share of errors allowed, and the random orders compared with, for a level of 5 % ± 0.5 %."""
GROUP = LINE[:3]
"""What orders are compared within: encoder, task, constants."""
RANDOM = "random"


@dataclass(frozen=True)
class FoundOrder:
    """A head order by the study's seed; its work over all ranking seeds, None where another order
    counts it, or there was none.
    """

    by_seed: Mapping[int, Sequence[Head]]
    seconds: float | None = None
    evaluations: int | None = None


def compare_orders(
    results: pandas.DataFrame, found: Mapping[tuple[str, str], Mapping[str, FoundOrder]]
) -> tuple[pandas.DataFrame, pandas.DataFrame] | None:
    """Compare every two head orders, known by (encoder, task) and name, of each encoder, task and
    kind of constants.

    What is beyond chance is beyond what single random lists differ by: the random order's seeds
    draw a list each, and ``least_random_lists`` says how many it takes; without a random order
    nothing is significant.

    Returns:
        ``orders.csv`` and ``order_scores.csv`` (docs/results.md); None where there is one order, or
        no fraction at which some heads are constant and others not.
    """
    between = results["constant_heads"].between(0, results["heads"], inclusive="neither")
    rows: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for group, cells in results[between].groupby(GROUP, sort=False):
        by_order = {
            str(order): {at: measured(cell) for at, cell in own.groupby("fraction", sort=False)}
            for order, own in cells.groupby("order", sort=False)
        }
        if len(by_order) < 2:
            continue
        named, orders = dict(zip(GROUP, group, strict=True)), found.get(group[:2], {})
        means = {order: _mean(list(own.values())) for order, own in by_order.items()}
        for order, mean in means.items():
            ends, own = clipped(cells["metric"].iloc[0], joint(mean)), orders.get(order)
            of_mean = ends_of(ends, "mean", "low", "high")
            work = {name: getattr(own, name, None) for name in ("seconds", "evaluations")}
            scores.append({**named, "order": order, **of_mean, **work})
        constant = cells.groupby("fraction", sort=False)["constant_heads"].first().to_dict()
        for (first, other), tested in compare_means(means).items():
            pair = {**named, "order": first, "other": other}
            both = orders.get(first), orders.get(other)
            lost = _ends(means[first], means[other])
            tau = _alike(*both)
            rows.append({**pair, "fraction": math.nan, **lost, **tested, "kendall_tau": tau})
            rows += [
                {
                    **pair,
                    "fraction": at,
                    **_ends(by_order[first][at], by_order[other][at]),
                    "beyond_chance": False,
                    "kept_by_both": _alike(*both, count),
                    "kept_by_chance": 1 - count / cells["heads"].iloc[0],
                }
                for at, count in constant.items()
            ]
    return (pandas.DataFrame(rows), pandas.DataFrame(scores)) if rows else None


def compare_means(means: Mapping[str, Measured]) -> dict[tuple[str, str], dict[str, Any]]:
    """Test for every two orders whether their mean scores differ, by Holm's rule in two families:
    pairs with random orders, and all others. A difference has to be beyond what seeds and examples
    show, and beyond what as many lists as there are, all random, differ by.
    """
    spread = math.nan
    scores_of_lists: dict[str, np.ndarray] = {}
    if RANDOM in means:
        listed = [mean for order, mean in means.items() if order != RANDOM]
        spread = deviation_of_lists(means[RANDOM], listed)
        scores_of_lists = _scores_of_lists(means)
    pairs = list(combinations(means, 2))
    found = {}
    # Of two fixed orders both have one list.
    for with_random, deviation in ((True, spread), (False, spread * math.sqrt(2))):
        family = [pair for pair in pairs if (RANDOM in pair) == with_random]
        p_values = []
        for first, other in family:
            p = p_value(means[first], means[other], deviation)
            if scores_of_lists and not math.isnan(p):
                p = max(p, _p_of_lists(scores_of_lists, first, other))
            p_values.append(p)
        for pair, p, p_holm in zip(family, p_values, holm(p_values), strict=True):
            # A share of lists may be 5 % exactly, and rounding must not part what is equal.
            beyond_chance = p_holm <= LEVEL + 1e-9
            found[pair] = {"p": p, "p_holm": p_holm, "beyond_chance": beyond_chance}
    return {pair: found[pair] for pair in pairs}


def _scores_of_lists(means: Mapping[str, Measured]) -> dict[str, Float[np.ndarray, " lists"]]:
    """By order the scores of its lists of heads, one a seed for random orders and one for others,
    less the mean score of the others with the same seed.
    """
    fixed = [mean.scores for order, mean in means.items() if order != RANDOM]
    seeds = [seed for seed in means[RANDOM].scores if all(seed in scores for scores in fixed)]
    base = np.array([np.mean([scores[seed] for scores in fixed]) for seed in seeds])
    found = {}
    for order, mean in means.items():
        scores = np.array([mean.scores[seed] for seed in seeds]) - base
        found[order] = scores if order == RANDOM else scores.mean(keepdims=True)
    return found


def _p_of_lists(
    scores_of_lists: Mapping[str, Float[np.ndarray, " lists"]], first: str, other: str
) -> float:
    """The exact p value of two orders, where every list is a random one: the share of lists that
    lie as far from the mean of all as an order's does; or, of two orders with one list each, the
    share of pairs of lists that lie as far apart.

    A deviation over a few random lists will not do: where one head in many matters, all of them
    may miss it.
    """
    random = scores_of_lists[RANDOM]
    fixed = [float(scores_of_lists[order][0]) for order in (first, other) if order != RANDOM]
    every = np.array([*fixed, *random])
    if len(fixed) == 1:
        distances = np.abs(every - every.mean())
        own = distances[0]
    else:
        above, below = np.triu_indices(len(every), 1)
        distances = np.abs(every[above] - every[below])
        own = abs(fixed[0] - fixed[1])
    return float((distances >= own - 1e-9).mean())


def least_random_lists(compared: int) -> int:
    """How many random lists it takes, of one seed each, until one of so many orders compared with
    random ones can be significant: by Holm's rule its p value, at least one in all lists, counts
    as many times.
    """
    return math.ceil(compared / LEVEL) - 1


def _mean(scores: Sequence[Measured]) -> Measured:
    """The mean of scores on the same examples, by seed."""
    seeds = scores[0].scores
    means = {seed: float(np.mean([one.scores[seed] for one in scores])) for seed in seeds}
    influence = {seed: np.mean([one.influence[seed] for one in scores], axis=0) for seed in seeds}
    return Measured(means, influence, scores[0].unit)


def _ends(first: Measured, other: Measured) -> dict[str, float]:
    lost = difference(first, other, unseen=False)
    if lost.low == lost.high:
        # Examples that all agree say little of those that nobody saw.
        lost = difference(first, other)
    return ends_of(lost, "difference", "low", "high")


def _alike(first: FoundOrder | None, other: FoundOrder | None, constant: int = 0) -> float:
    """Kendall's τ of two orders; or, of the heads that stay input-dependent after the first
    ``constant`` of one, the share that the other keeps as well. The mean over seeds, nan where an
    order is not known.
    """
    from scipy.stats import kendalltau

    if first is None or other is None:
        return math.nan
    pairs = [(order, other.by_seed[seed]) for seed, order in first.by_seed.items()]
    if not constant:
        places = [[*map(one.index, two)] for one, two in pairs]
        return float(np.mean([kendalltau(own, range(len(own))).statistic for own in places]))
    kept = [len({*one[constant:]} & {*two[constant:]}) for one, two in pairs]
    return float(np.mean([count / (len(pairs[0][0]) - constant) for count in kept]))


def alike(
    values: Float[np.ndarray, "seeds heads"], counts: tuple[int, ...]
) -> Float[np.ndarray, " _"]:
    """Kendall's τ (equal values are on neither side), then the share of the first heads in common
    for each count; all are means over pairs of seeds.
    """
    seeds, heads = values.shape
    positions = values.argsort(axis=1, kind="stable").argsort(axis=1)
    sides = np.sign(values[:, :, None] - values[:, None, :]).astype(np.int8)
    # The square of a sum over seeds holds every pair of seeds twice, and each seed with itself.
    twice = (sides.sum(axis=0, dtype=np.int64) ** 2).sum() - np.count_nonzero(sides)
    found = [twice / (heads * (heads - 1))]
    for count in counts:
        having = (positions < count).sum(axis=0)
        found.append((having * (having - 1)).sum() / count)
    return np.array(found) / (seeds * (seeds - 1))


@lru_cache
def random_alike(seeds: int, heads: int, counts: tuple[int, ...]) -> Float[np.ndarray, "draws _"]:
    numbers = np.random.default_rng(0)
    return np.stack([alike(numbers.random((seeds, heads)), counts) for _ in range(DRAWS)])


def more_alike(
    own: Float[np.ndarray, "seeds heads"], other: Float[np.ndarray, "seeds heads"]
) -> bool:
    """Whether seeds are more alike in their own λ than in the other, beyond chance at 5 %.

    τ between seeds, less that of the other, is compared with what it is after each seed exchanged
    both or not, at random. Seeds have no row in common; fewer than five tell nothing.
    """
    seeds, heads = own.shape
    values = np.concatenate([own, other])
    sides = np.sign(values[:, :, None] - values[:, None, :]).reshape(2 * seeds, -1)
    taus, pairs = sides @ sides.T / (heads * (heads - 1)), np.triu_indices(seeds, 1)
    drawn = np.random.default_rng(0).integers(2, size=(DRAWS, seeds))
    exchanged = np.concatenate([np.zeros((1, seeds), drawn.dtype), drawn])

    def mean(of_seed: np.ndarray) -> np.ndarray:
        return taus[of_seed[:, pairs[0]], of_seed[:, pairs[1]]].mean(axis=1)

    numbers = np.arange(seeds)
    excess = mean(numbers + seeds * exchanged) - mean(numbers + seeds * (1 - exchanged))
    return bool((excess >= excess[0] - 1e-9).mean() <= LEVEL)
