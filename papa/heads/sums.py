"""Sums of attention over texts, as arrays: the driver, which merges them, does without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass
class AttentionSums:
    """Σ A over some inputs, in multiples of 2^-32, and how many have both slots; float64.

    ``special`` is that of their average (``papa.heads.constants``).
    """

    sums: Float[np.ndarray, "layers heads slots slots"]
    counts: Float[np.ndarray, "slots slots"]
    special: tuple[int, ...] | None = None

    def merge(self, shard: AttentionSums) -> None:
        """Add the sums over other inputs, in place: a third copy would be too large for memory."""
        np.add(self.sums, shard.sums, out=self.sums)
        np.add(self.counts, shard.counts, out=self.counts)
        self.special = shard.special
