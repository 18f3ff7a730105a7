"""How alike orders of several seeds are, beyond chance."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float

LEVEL, DRAWS = 0.05, 1999
"""The share of errors allowed, and the random orders compared with, for a level of 5 % ± 0.5 %."""


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
    """``alike`` of random orders."""
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
