"""Comparisons of head orders: every two of a study by their scores and their agreement; and the
agreement of the orders of n ≥ 2 seeds.

A list is an order of heads with which one seed was scored: a random order draws one for each seed,
every other order has one list for all seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypedDict

import numpy as np
import pandas
from jaxtyping import Float

from papa.scores.intervals import (
    SeedScores,
    clipped,
    interval_over_seeds_and_examples,
    paired_difference,
)
from papa.scores.levels import LEVEL
from papa.scores.p_values import holm, p_value
from papa.scores.summary import interval_columns, seed_scores
from papa.spec.columns import GROUP
from papa.spec.orders import Head

DRAWS = 1999
"""How many random orders are drawn: an estimated level of 5 % is then exact to 0.5 %."""
RANDOM = "random"
ROUNDING = 1e-9
"""Differences of this size are rounding: shares of lists may be 5 % exactly."""


@dataclass(frozen=True)
class StudiedOrder:
    """An order of heads, or of groups by their first heads, by the study's seed, and its work over
    all ranking seeds: None if another order counts the same work, or if there was none.
    """

    by_seed: Mapping[int, Sequence[Head]]
    seconds: float | None = None
    evaluations: int | None = None


@dataclass(frozen=True)
class OrderComparison:
    """The head orders of a study, compared (docs/results.md).

    Attributes:
        pairs: ``orders.csv``, the comparisons of every two orders.
        scores: ``order_scores.csv``, the mean score of every order.
    """

    pairs: pandas.DataFrame
    scores: pandas.DataFrame


class OrderTest(TypedDict):
    """A test whether the mean scores of two orders differ, as columns of ``orders.csv``."""

    p: float
    p_holm: float
    beyond_chance: bool


def compare_orders(
    results: pandas.DataFrame, orders: Mapping[tuple[str, str], Mapping[str, StudiedOrder]]
) -> OrderComparison | None:
    """Compare every two head orders, by name, of each (encoder, task) and kind of constants.

    A difference is significant if it exceeds what single random lists differ by: the random order's
    seeds draw a list each, and ``fewest_random_lists`` says how many it takes. Without a random
    order nothing is significant.

    Returns:
        The comparison; None if there is one order only, or no fraction at which some heads are
        constant and others not.
    """
    is_partial = results["constant_heads"].between(0, results["heads"], inclusive="neither")
    rows: list[dict[str, object]] = []
    mean_rows: list[dict[str, object]] = []
    for group, cells in results[is_partial].groupby(GROUP, sort=False):
        scores = {
            str(order): {
                fraction: seed_scores(cell)
                for fraction, cell in cells_of_order.groupby("fraction", sort=False)
            }
            for order, cells_of_order in cells.groupby("order", sort=False)
        }
        if len(scores) < 2:
            continue
        group_columns = dict(zip(GROUP, group, strict=True))
        studied = orders.get(group[:2], {})
        means = {order: _mean(list(by_fraction.values())) for order, by_fraction in scores.items()}
        metric = cells["metric"].iloc[0]
        for order, mean in means.items():
            mean_rows.append(
                {**group_columns, "order": order, **_mean_columns(mean, metric, studied.get(order))}
            )
        constant_heads = cells.groupby("fraction", sort=False)["constant_heads"].first()
        constant_shares = (constant_heads / cells["heads"].iloc[0]).to_dict()
        for (first, second), test in compare_means(means).items():
            pair = {**group_columns, "order": first, "other": second}
            first_order = studied.get(first)
            second_order = studied.get(second)
            rows.append(
                {
                    **pair,
                    "fraction": math.nan,
                    **_difference_columns(means[first], means[second]),
                    **test,
                    "kendall_tau": _kendall_tau(first_order, second_order),
                }
            )
            for fraction, constant_share in constant_shares.items():
                rows.append(
                    {
                        **pair,
                        "fraction": fraction,
                        **_difference_columns(scores[first][fraction], scores[second][fraction]),
                        "beyond_chance": False,
                        "kept_by_both": _overlap(first_order, second_order, constant_share),
                        "kept_by_chance": 1 - constant_share,
                    }
                )
    return OrderComparison(pandas.DataFrame(rows), pandas.DataFrame(mean_rows)) if rows else None


def _mean_columns(mean: SeedScores, metric: str, order: StudiedOrder | None) -> dict[str, object]:
    """Return the columns of an order in ``order_scores.csv``: its mean score, and its work."""
    interval = clipped(metric, interval_over_seeds_and_examples(mean))
    return {
        **interval_columns(interval, "mean", "low", "high"),
        "seconds": order.seconds if order else None,
        "evaluations": order.evaluations if order else None,
    }


def compare_means(means: Mapping[str, SeedScores]) -> dict[tuple[str, str], OrderTest]:
    """Test whether the mean scores of every two orders differ, with Holm's correction in two
    families: pairs with random orders, and all other pairs.

    The p value is the larger of two: one for the variation over seeds and examples together with
    that of random orders, and one for the rank among all random orders.
    """
    scores_of_lists = _scores_of_lists(means) if RANDOM in means else {}
    random_lists = scores_of_lists.get(RANDOM, np.empty(0))
    has_deviation = len(random_lists) > 1
    deviation_of_one_list = float(np.std(random_lists, ddof=1)) if has_deviation else math.nan

    def p_of_pair(first: str, second: str) -> float:
        # A random order's mean is over many lists; two fixed orders have one list each.
        deviation = deviation_of_one_list * (1 if RANDOM in (first, second) else math.sqrt(2))
        p = p_value(means[first], means[second], deviation)
        if scores_of_lists and not math.isnan(p):
            p = max(p, _p_of_lists(scores_of_lists, first, second))
        return p

    pairs = list(combinations(means, 2))
    with_random = [pair for pair in pairs if RANDOM in pair]
    fixed = [pair for pair in pairs if RANDOM not in pair]
    tests: dict[tuple[str, str], OrderTest] = {}
    for family in (with_random, fixed):
        p_values = [p_of_pair(*pair) for pair in family]
        for pair, p, p_holm in zip(family, p_values, holm(p_values), strict=True):
            tests[pair] = {"p": p, "p_holm": p_holm, "beyond_chance": p_holm <= LEVEL + ROUNDING}
    return {pair: tests[pair] for pair in pairs}


def _scores_of_lists(means: Mapping[str, SeedScores]) -> dict[str, Float[np.ndarray, " lists"]]:
    """Return by order the scores of its lists of heads, one a seed for random orders and one for
    others, less the mean score of the fixed orders with the same seed.
    """
    fixed = [mean.scores for order, mean in means.items() if order != RANDOM]
    seeds = [seed for seed in means[RANDOM].scores if all(seed in scores for scores in fixed)]
    base = np.array([np.mean([scores[seed] for scores in fixed]) for seed in seeds])
    scores_of_lists = {}
    for order, mean in means.items():
        scores = np.array([mean.scores[seed] for seed in seeds]) - base
        scores_of_lists[order] = scores if order == RANDOM else scores.mean(keepdims=True)
    return scores_of_lists


def _p_of_lists(
    scores_of_lists: Mapping[str, Float[np.ndarray, " lists"]], first: str, second: str
) -> float:
    """Return the exact p value of two orders under the hypothesis that every list is random.

    With a random order it is the share of lists that lie as far from the mean of all as the other
    order's list does; of two orders with one list each, the share of pairs of lists that lie as
    far apart. A standard deviation of a few random lists would not do: where one head in many
    matters, all of them may miss it.
    """
    random = scores_of_lists[RANDOM]
    fixed = [float(scores_of_lists[order][0]) for order in (first, second) if order != RANDOM]
    all_lists = np.array([*fixed, *random])
    if len(fixed) == 1:
        distances = np.abs(all_lists - all_lists.mean())
        observed = distances[0]
    else:
        rows, columns = np.triu_indices(len(all_lists), 1)
        distances = np.abs(all_lists[rows] - all_lists[columns])
        observed = abs(fixed[0] - fixed[1])
    return float((distances >= observed - ROUNDING).mean())


def fewest_random_lists(compared: int) -> int:
    """Return how many random lists, one a seed, it takes until one of ``compared`` orders can
    differ significantly from random ones: the smallest p value is 1 in all lists, times
    ``compared`` by Holm's rule.
    """
    return math.ceil(compared / LEVEL) - 1


def _mean(scores: Sequence[SeedScores]) -> SeedScores:
    """Return the mean of scores on the same examples, by seed."""
    seeds = scores[0].scores
    means = {seed: float(np.mean([cell.scores[seed] for cell in scores])) for seed in seeds}
    influence = {seed: np.mean([cell.influence[seed] for cell in scores], axis=0) for seed in seeds}
    return SeedScores(means, influence, scores[0].example_unit)


def _difference_columns(first: SeedScores, second: SeedScores) -> dict[str, float]:
    interval = paired_difference(first, second, rule_of_three=False)
    if interval.low == interval.high:
        # Examples that all agree say little of others.
        interval = paired_difference(first, second)
    return interval_columns(interval, "difference", "low", "high")


def _orders_by_seed(
    first: StudiedOrder | None, second: StudiedOrder | None
) -> list[tuple[Sequence[Head], Sequence[Head]]]:
    """Return the two orders of each seed; an empty list if one of them is not known."""
    if first is None or second is None:
        return []
    return [(order, second.by_seed[seed]) for seed, order in first.by_seed.items()]


def _kendall_tau(first: StudiedOrder | None, second: StudiedOrder | None) -> float:
    """Return Kendall's τ of two orders, the mean over seeds; nan if one is not known."""
    from scipy.stats import kendalltau

    taus = []
    for first_heads, second_heads in _orders_by_seed(first, second):
        positions = [first_heads.index(head) for head in second_heads]
        taus.append(kendalltau(positions, range(len(positions))).statistic)
    return float(np.mean(taus)) if taus else math.nan


def _overlap(
    first: StudiedOrder | None, second: StudiedOrder | None, constant_share: float
) -> float:
    """Return the share of the units that stay input-dependent by the first order and also do by the
    second, the mean over seeds; nan if one order is not known.
    """
    shares = []
    for first_units, second_units in _orders_by_seed(first, second):
        constant = round(constant_share * len(first_units))
        common = {*first_units[constant:]} & {*second_units[constant:]}
        shares.append(len(common) / (len(first_units) - constant))
    return float(np.mean(shares)) if shares else math.nan


def seed_agreement(
    values: Float[np.ndarray, "seeds heads"], counts: tuple[int, ...]
) -> Float[np.ndarray, " _"]:
    """Return how much the orders of several seeds agree, means over pairs of seeds: Kendall's τ
    (ties count as neither), then for each of ``counts`` the share of first heads in common.
    """
    seeds, heads = values.shape
    positions = values.argsort(axis=1, kind="stable").argsort(axis=1)
    signs = np.sign(values[:, :, None] - values[:, None, :]).astype(np.int8)
    # The square of a sum over seeds holds every pair of seeds twice, and each seed with itself.
    concordance = (signs.sum(axis=0, dtype=np.int64) ** 2).sum() - np.count_nonzero(signs)
    agreement = [concordance / (heads * (heads - 1))]
    for count in counts:
        seeds_with_head = (positions < count).sum(axis=0)
        agreement.append((seeds_with_head * (seeds_with_head - 1)).sum() / count)
    return np.array(agreement) / (seeds * (seeds - 1))


@lru_cache
def random_agreement(
    seeds: int, heads: int, counts: tuple[int, ...]
) -> Float[np.ndarray, "draws _"]:
    """Return ``seed_agreement`` of ``DRAWS`` random orders."""
    generator = np.random.default_rng(0)
    return np.stack(
        [seed_agreement(generator.random((seeds, heads)), counts) for _ in range(DRAWS)]
    )


def agrees_more(
    trained: Float[np.ndarray, "seeds heads"], control: Float[np.ndarray, "seeds heads"]
) -> bool:
    """Test whether seeds agree more in the trained λ than in the control's, at a level of 5 %.

    The statistic is the mean τ between seeds of the trained λ, less that of the control. Its null
    distribution exchanges the two λ of each seed or not, at random. Seeds must have no row in
    common; fewer than five are never significant.
    """
    seeds, heads = trained.shape
    values = np.concatenate([trained, control])
    signs = np.sign(values[:, :, None] - values[:, None, :]).reshape(2 * seeds, -1)
    taus = signs @ signs.T / (heads * (heads - 1))
    first_of_pair, second_of_pair = np.triu_indices(seeds, 1)
    drawn = np.random.default_rng(0).integers(2, size=(DRAWS, seeds))
    # The first row exchanges nothing: it is what was observed.
    is_exchanged = np.concatenate([np.zeros((1, seeds), drawn.dtype), drawn])

    def mean_tau(indices: np.ndarray) -> np.ndarray:
        return taus[indices[:, first_of_pair], indices[:, second_of_pair]].mean(axis=1)

    trained_index = np.arange(seeds)
    control_index = trained_index + seeds
    first = np.where(is_exchanged, control_index, trained_index)
    second = np.where(is_exchanged, trained_index, control_index)
    excess = mean_tau(first) - mean_tau(second)
    return bool((excess >= excess[0] - ROUNDING).mean() <= LEVEL)
