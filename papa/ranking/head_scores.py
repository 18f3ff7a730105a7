"""Head scores of several seeds: the rows of each, intervals, and how much their orders agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NotRequired, TypedDict

import numpy as np
import pandas
from jaxtyping import Bool, Float, Int

from papa.scores.intervals import t_quantile
from papa.scores.levels import CONFIDENCE, LEVEL
from papa.scores.order_comparison import (
    DRAWS,
    ROUNDING,
    agrees_more,
    random_agreement,
    seed_agreement,
)
from papa.spec.orders import partial_counts
from papa.spec.study import CONTROL_SEEDS

EVALUATION_ROWS = 256
"""The default number of training rows on which a set of heads is evaluated."""
LEAST_TEXTS = 8
"""Of each seed, for an interval: seeds of 2 to 4 texts push λ one of two ways, all of them the same
way by chance, and such intervals held the truth in .78 of cases (``benchmarks.certainty``).
"""
HeadArray = Float[np.ndarray, "layers heads"]


def rows_of_seed(count: int, rows: int | None, seed: int) -> Int[np.ndarray, " chosen"]:
    """Return the indices of the ``min(rows, count)`` rows on which a ranking seed scores heads.

    All rows are shuffled and divided among consecutive seeds, which then share no row; when a
    shuffle is used up, the next seeds divide another one. Without ``rows`` each seed has all rows.
    """
    partition = partition_of(count, rows, seed)
    if partition is None or rows is None:
        return np.arange(count)
    start = seed % (count // rows) * rows
    return np.random.default_rng(partition).permutation(count)[start : start + rows]


def partition_of(count: int, rows: int | None, seed: int) -> int | None:
    """Return which partition of all rows those of a seed are a part of, by the seed of its shuffle:
    seeds with equal partitions share no row. None if the seed has all rows.
    """
    return None if rows is None or rows >= count else seed // (count // rows)


def rows_and_partition(
    count: int, rows: int | None, seed: int, seeds: Sequence[int]
) -> tuple[Int[np.ndarray, " chosen"], int | None]:
    """Return the rows on which a ranking seed scores heads, and ``partition_of`` them.

    Without a number of ``rows`` the seeds divide all rows among them, by a draw that follows from
    the seeds; where that leaves a seed fewer than ``LEAST_TEXTS``, all seeds have all rows. Where
    no rows are divided, as for probes, ``seeds`` is ().
    """
    if rows is not None:
        return rows_of_seed(count, rows, seed), partition_of(count, rows, seed)
    if len(seeds) < 2 or count < LEAST_TEXTS * len(seeds):
        return np.arange(count), None
    shares = np.array_split(np.random.default_rng([*seeds]).permutation(count), len(seeds))
    # All seeds divide the same permutation, their only one.
    return shares[list(seeds).index(seed)], 0


@dataclass(eq=False)
class HeadScores:
    """A score of every head by each of n ≥ 1 seeds; the smallest become constant first.

    Attributes:
        by_seed: The scores.
        standard_error: Of the scores of a single seed, from ``samples``; None if it is not known.
        samples: How many independent values it is from: rows, texts, or drawn orders.
        evaluations: Passes over the rows, gradients counted as one more.
        has_interval: False if seeds differ in nothing from which an interval follows.
    """

    by_seed: Float[np.ndarray, "seeds layers heads"]
    standard_error: HeadArray | None = None
    _: KW_ONLY
    samples: int = 0
    evaluations: int = 0
    has_interval: bool = True

    @classmethod
    def from_seeds(cls, scores: Sequence[HeadScores], has_interval: bool = True) -> HeadScores:
        """Return the scores of all seeds, from those of each."""
        by_seed = np.concatenate([seed_scores.by_seed for seed_scores in scores])
        if len(scores) == 1 or not np.ptp(by_seed, axis=0).any():
            # Seeds that have the same rows, and draw nothing, are one.
            return scores[0]
        return cls(by_seed, has_interval=has_interval)

    @cached_property
    def mean(self) -> HeadArray:
        """The mean over seeds."""
        return self.by_seed.mean(axis=0)

    @cached_property
    def interval(self) -> tuple[HeadArray, HeadArray]:
        """Each head's 95 % interval: Student's t over seeds, or over one seed's samples; NaN where
        nothing is known.
        """
        seeds = len(self.by_seed)
        samples = self.samples
        error = self.standard_error
        if seeds > 1:
            samples = seeds
            error = self.by_seed.std(axis=0, ddof=1) / math.sqrt(seeds)
        if error is None or not self.has_interval:
            error = np.full_like(self.mean, math.nan)
        half = t_quantile(samples) * error
        return self.mean - half, self.mean + half

    def frame(self, method: str) -> pandas.DataFrame:
        """Return a row for every head: layer, head, method, score, low, high."""
        layers, heads = np.indices(self.mean.shape)
        low, high = self.interval
        return pandas.DataFrame(
            {
                "layer": layers.ravel(),
                "head": heads.ravel(),
                "method": method,
                "score": self.mean.ravel(),
                "low": low.ravel(),
                "high": high.ravel(),
            }
        )


class SharedHeads(TypedDict):
    """The constant heads of an input-dependent ``fraction``: the ``share`` that two seeds have in
    common, that of random orders on average, and whether the whole order and it are significant.
    """

    fraction: float
    share: float
    by_chance: float
    is_significant: bool


class LambdaAgreement(TypedDict):
    """How much the orders by λ of seeds agree. One seed, or equal seeds, have ``seeds`` and
    ``heads`` of these keys alone; callers who know the model and its task add the first five.

    Attributes:
        encoder: The model.
        task: Its task.
        objective: What λ of a native head was trained on.
        units: What is ordered, in words; heads if it is missing.
        label_free: Whether no labels were read.
        seeds: How many there are.
        heads: How many heads, or groups of heads, there are.
        significant_heads: Of how many λ differs significantly from .5.
        kendall_tau: The mean over pairs of seeds, -1 to 1.
        tau_by_chance: What it stays below in 95 % of studies of as many random orders.
        is_significant: Whether the whole order is, at 5 %.
        shared: Of each fraction with constant heads and others.
        distinct_rows: Whether no two seeds share a row.
        control: Kendall's τ between seeds with shuffled labels, and whether true labels agree by
            significantly more; None where that was not tested.
    """

    encoder: NotRequired[str]
    task: NotRequired[str]
    objective: NotRequired[str]
    units: NotRequired[str]
    label_free: NotRequired[bool]
    seeds: int
    heads: int
    significant_heads: NotRequired[int]
    kendall_tau: NotRequired[float]
    tau_by_chance: NotRequired[float]
    is_significant: NotRequired[bool]
    shared: NotRequired[list[SharedHeads]]
    distinct_rows: NotRequired[bool]
    control: NotRequired[tuple[float, bool] | None]


class TrainedLambda(HeadScores):
    """λ of every head, trained once with each seed; heads become constant by its mean.

    Args:
        lambdas: By seed.
        distinct_rows: Whether no two seeds have a row in common.
        shuffled: λ on the same rows with shuffled labels; empty where it was not trained.
        native: Whether it was trained on a native head, whose seeds differ in nothing but their
            rows: where they share them, nothing is known of its certainty.
    """

    def __init__(
        self,
        lambdas: Mapping[int, HeadArray],
        distinct_rows: bool = False,
        shuffled: Mapping[int, HeadArray] = MappingProxyType({}),
        native: bool = False,
    ) -> None:
        by_seed = np.stack([*lambdas.values()]).astype(np.float64)
        super().__init__(by_seed, has_interval=distinct_rows or not native)
        self.lambdas = lambdas
        self.distinct_rows = distinct_rows
        self.shuffled = shuffled

    @property
    def differs_from_start(self) -> Bool[np.ndarray, "layers heads"]:
        """Which heads' λ differs significantly from .5, where training starts: it lies outside of
        the interval.
        """
        low, high = self.interval
        return (low > 0.5) | (high < 0.5)

    def agreement(self, fractions: Sequence[float] = ()) -> LambdaAgreement:
        """Return how much the orders of the seeds agree.

        The whole order is tested first, then each fraction's constant heads by themselves, each at
        5 %: where all orders are random, at most 5 % of studies call anything significant.
        """
        seeds = len(self.by_seed)
        heads = self.mean.size
        if seeds == 1 or not np.ptp(self.by_seed, axis=0).any():
            return {"seeds": seeds, "heads": heads}
        counts = partial_counts(fractions, heads)
        # Kendall's τ, then the shared heads of each count.
        observed = seed_agreement(self.by_seed.reshape(seeds, heads), tuple(counts.values()))
        random = random_agreement(seeds, heads, tuple(counts.values()))
        # Rounding must not part what is equal.
        p_values = (1 + (random >= observed - ROUNDING).sum(axis=0)) / (1 + DRAWS)
        is_significant = p_values <= LEVEL
        shared: list[SharedHeads] = [
            {
                "fraction": fraction,
                "share": float(observed[index]),
                "by_chance": count / heads,
                "is_significant": bool(is_significant[0] and is_significant[index]),
            }
            for index, (fraction, count) in enumerate(counts.items(), start=1)
        ]
        return {
            "seeds": seeds,
            "heads": heads,
            "significant_heads": int(self.differs_from_start.sum()),
            "kendall_tau": float(observed[0]),
            "tau_by_chance": float(np.quantile(random[:, 0], CONFIDENCE)),
            "is_significant": bool(is_significant[0]),
            "shared": shared,
            "distinct_rows": self.distinct_rows,
            "control": self.control,
        }

    @property
    def control(self) -> tuple[float, bool] | None:
        """Kendall's τ between seeds with shuffled labels, and whether true labels agree by more."""
        is_known = self.distinct_rows and self.shuffled.keys() == self.lambdas.keys()
        seeds = len(self.lambdas)
        if not is_known or seeds < CONTROL_SEEDS:
            return None
        shuffled = TrainedLambda({seed: self.shuffled[seed] for seed in self.lambdas})
        shuffled_lambdas = shuffled.by_seed.reshape(seeds, -1)
        is_higher = agrees_more(self.by_seed.reshape(seeds, -1), shuffled_lambdas)
        return float(seed_agreement(shuffled_lambdas, ())[0]), is_higher
