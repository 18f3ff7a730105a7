"""Head scores of several seeds: the rows of each, intervals, and how much their orders agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas
from jaxtyping import Bool, Float

from papa.scores.order_comparison import DRAWS, LEVEL, agrees_more, random_agreement, seed_agreement
from papa.spec.orders import partial_counts
from papa.spec.study import CONTROL_SEEDS

VALUED_ROWS = 256
"""Training rows on which a set of heads is valued, where ``ranking.rows`` asks for no other."""


def rows_of_seed(count: int, rows: int | None, seed: int) -> np.ndarray:
    """Return the indices of the rows on which a ranking seed scores heads: int64
    [min(rows, count)].

    All rows are shuffled and divided among consecutive seeds, which then share no row; when a
    shuffle is used up, the next seeds divide another one. Without ``rows`` each seed has all rows.
    """
    shuffle_seed = shuffle_seed_of(count, rows, seed)
    if shuffle_seed is None or rows is None:
        return np.arange(count)
    start = seed % (count // rows) * rows
    return np.random.default_rng(shuffle_seed).permutation(count)[start : start + rows]


def shuffle_seed_of(count: int, rows: int | None, seed: int) -> int | None:
    """Return the seed by which ``rows_of_seed`` shuffles all rows before it takes a part of them;
    None where it takes all.
    """
    return None if rows is None or rows >= count else seed // (count // rows)


LEAST_TEXTS = 8
"""Of each seed, for an interval: seeds of 2 to 4 texts push λ one of two ways, all of them the same
way by chance, and such intervals held the truth in .78 of cases (``benchmarks.certainty``).
"""


def divided_rows(
    count: int, rows: int | None, seed: int, seeds: Sequence[int]
) -> tuple[np.ndarray, int | None]:
    """Return the rows on which a ranking seed scores heads, and the seed of the shuffle of all rows
    that they are a part of; None where seeds share rows.

    Without a number of ``rows`` the seeds divide all rows among them, by a draw that follows from
    the seeds; where that leaves a seed fewer than ``LEAST_TEXTS``, all seeds have all rows. Where
    no rows are divided, as for probes, ``seeds`` is ().
    """
    if rows is not None:
        return rows_of_seed(count, rows, seed), shuffle_seed_of(count, rows, seed)
    if len(seeds) < 2 or count < LEAST_TEXTS * len(seeds):
        return np.arange(count), None
    shares = np.array_split(np.random.default_rng([*seeds]).permutation(count), len(seeds))
    return shares[list(seeds).index(seed)], 0


_CONFIDENCE = 0.95
OfHeads = Float[np.ndarray, "layers heads"]


@dataclass(eq=False)
class HeadScores:
    """A score of every head by each of several seeds, the smallest of which become constant first;
    those of one seed may have a standard error from ``draws``. ``evaluations`` are passes over
    rows, gradients counted as one more. Unless ``certain``, seeds differ in nothing from which an
    interval follows.
    """

    by_seed: Float[np.ndarray, "seeds layers heads"]
    standard_error: OfHeads | None = None
    draws: int = 0
    evaluations: int = 0
    certain: bool = True

    @classmethod
    def joined(cls, scores: Sequence[HeadScores], certain: bool = True) -> HeadScores:
        """Return the scores of all seeds, from those of each."""
        by_seed = np.concatenate([seed_scores.by_seed for seed_scores in scores])
        if len(scores) == 1 or not np.ptp(by_seed, axis=0).any():
            # Seeds that have the same rows, and draw nothing, are one.
            return scores[0]
        return cls(by_seed, certain=certain)

    @cached_property
    def mean(self) -> OfHeads:
        return self.by_seed.mean(axis=0)

    @cached_property
    def interval(self) -> tuple[OfHeads, OfHeads]:
        """Each head's 95 % interval: Student's t over seeds, or over one seed's draws; NaN where
        nothing is known.
        """
        from scipy.stats import t

        samples = len(self.by_seed)
        error = self.standard_error
        if samples > 1:
            error = self.by_seed.std(axis=0, ddof=1) / math.sqrt(samples)
        else:
            samples = self.draws
        if error is None or not self.certain:
            error = np.full_like(self.mean, math.nan)
        half = t.ppf((1 + _CONFIDENCE) / 2, samples - 1) * error
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


class TrainedLambda(HeadScores):
    """λ of every head, trained once with each of several seeds; heads become constant by its mean.

    ``distinct_rows`` says whether no two seeds have a row in common; ``shuffled`` is λ on the same
    rows with shuffled labels, empty where it was not trained. Seeds of a ``native`` head differ in
    nothing but their rows: where they share them, nothing is known of its certainty.
    """

    def __init__(
        self,
        lambdas: Mapping[int, OfHeads],
        distinct_rows: bool = False,
        shuffled: Mapping[int, OfHeads] = MappingProxyType({}),
        native: bool = False,
    ) -> None:
        by_seed = np.stack([*lambdas.values()]).astype(np.float64)
        super().__init__(by_seed, certain=distinct_rows or not native)
        self.lambdas = lambdas
        self.distinct_rows = distinct_rows
        self.shuffled = shuffled

    @property
    def differs_from_start(self) -> Bool[np.ndarray, "layers heads"]:
        """Whose λ differs significantly from .5, where training starts: .5 is outside of the
        interval.
        """
        low, high = self.interval
        return (low > 0.5) | (high < 0.5)

    def facts(self, fractions: Sequence[float] = ()) -> dict[str, Any]:
        """Return how much the orders of the seeds agree, as a manifest holds it and
        ``papa.reporting.sentences.certainty`` words it.

        The whole order is tested first, then each fraction's constant heads by themselves, each at
        5 %: where all orders are random, at most 5 % of studies call anything significant.

        Returns:
            ``seeds`` and ``heads``; and of n ≥ 2 seeds that differ ``distinct_rows``, ``control``;
            ``significant_heads``, of how many λ differs significantly from .5; ``kendall_tau``, the
            mean over pairs of seeds, -1..1; ``tau_by_chance``, what it stays below in 95 % of
            studies of as many random orders; whether it ``is_significant`` at 5 %; and ``shared``,
            for each input-dependent ``fraction`` with constant heads and others, the ``share`` of
            the constant heads that two seeds have in common, what random orders share on average,
            and whether that is significant; never where the whole order is not.
        """
        seeds = len(self.by_seed)
        heads = self.mean.size
        if seeds == 1 or not np.ptp(self.by_seed, axis=0).any():
            return {"seeds": seeds, "heads": heads}
        counts = partial_counts(fractions, heads)
        agreement = seed_agreement(self.by_seed.reshape(seeds, heads), tuple(counts.values()))
        random = random_agreement(seeds, heads, tuple(counts.values()))
        # Rounding must not part what is equal.
        significant = 1 + (random >= agreement - 1e-9).sum(axis=0) <= LEVEL * (1 + DRAWS)
        shared = [
            {
                "fraction": fraction,
                "share": float(agreement[index]),
                "by_chance": count / heads,
                "is_significant": bool(significant[0] and significant[index]),
            }
            for index, (fraction, count) in enumerate(counts.items(), start=1)
        ]
        return {
            "seeds": seeds,
            "heads": heads,
            "significant_heads": int(self.differs_from_start.sum()),
            "kendall_tau": float(agreement[0]),
            "tau_by_chance": float(np.quantile(random[:, 0], _CONFIDENCE)),
            "is_significant": bool(significant[0]),
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
