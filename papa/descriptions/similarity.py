"""Which heads are alike: the divergence of their rows, the cosine of their outputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from torch.special import entr

from papa.descriptions.means import Means, rows
from papa.descriptions.seen import Seen

SMOOTHING = 0.001
"""Rows are (1 - this) · p + this / n before they are compared (Clark et al., 2019)."""
PART = 1 << 20
"""Entries of attention that are compared at a time."""


class Similarity(Means):
    """A row for each pair of heads, ``of`` the second as layer.head (Clark et al., 2019, Section
    6): means over tokens of the Jensen-Shannon ``divergence`` of their smoothed rows in nats, and
    of the ``cosine`` of their outputs.
    """

    heads = 0

    def see(self, seen: Seen) -> None:
        self.heads = seen.attention.shape[1]
        sums = {
            "divergence": divergences(seen.attention.flatten(0, 1)),
            "cosine": cosines(seen.output.flatten(0, 1)),
        }
        self.add(seen.of, len(seen.separators), sums)

    def frame(self) -> pd.DataFrame:
        parts = []
        for of, measure, mean, half in self.told():
            layer, head = divmod(np.arange(len(mean)), self.heads)
            names = np.array([f"{one}.{own}" for one, own in zip(layer, head, strict=True)])
            first, second = pairs = np.triu_indices(len(mean), 1)
            named = {"layer": layer[first], "head": head[first], "of": names[second]}
            parts.append(rows(of, measure, mean[pairs], half[pairs], **named))
        return pd.concat(parts, ignore_index=True)


def divergences(attention: Float[Tensor, "heads n n"]) -> Float[Tensor, "heads heads"]:
    """The Jensen-Shannon divergence of the rows of each pair of heads, nats, added up over rows."""
    heads, n, _ = attention.shape
    found = torch.zeros(heads, heads, dtype=torch.double)
    # Some rows and one head at a time: all at once would hold heads² matrices.
    for some in attention.split(max(1, PART // (heads * n)), dim=1):
        smooth = (1 - SMOOTHING) * some.double() + SMOOTHING / n
        own = entr(smooth).sum(dim=-1)
        for head in range(heads):
            mixed = smooth[head:].add(smooth[head]).div_(2)
            apart = entr(mixed).sum(dim=-1) - (own[head:] + own[head]) / 2
            found[head, head:] += apart.sum(dim=-1)
    return found + found.triu(1).T


def cosines(output: Float[Tensor, "heads n width"]) -> Float[Tensor, "heads heads"]:
    """The cosine of what each pair of heads puts out, or 0, added up over tokens."""
    unit = torch.nn.functional.normalize(output.double(), dim=-1).flatten(1)
    return unit @ unit.T
