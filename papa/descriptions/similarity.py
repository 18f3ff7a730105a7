"""Which heads are alike: the divergence of their rows, the cosine of their outputs, clusters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor
from torch.special import entr

from papa.descriptions.means import HALF, Mean
from papa.descriptions.seen import ATTENTIONS, Seen

SMOOTHING = 0.001
"""Rows are (1 - this) · p + this / n before they are compared (Clark et al., 2019)."""
PART = 1 << 20
"""Entries of attention that are compared at a time."""
CUT = 0.5
"""Clusters are of heads whose average linkage is within this share of the mean divergence."""


class Similarity:
    """A row for each pair of heads (Clark et al., 2019, Section 6).

    ``divergence`` is the Jensen-Shannon divergence of their smoothed rows in nats, ``cosine`` that
    of their outputs, each a mean over tokens; ``cluster`` and ``other_cluster`` number the clusters
    by average linkage of the divergences.
    """

    def __init__(self) -> None:
        self.means = {of: Mean() for of in ATTENTIONS}
        self.heads = 0

    def see(self, seen: Seen) -> None:
        sums = [divergences(seen.attention.flatten(0, 1)), cosines(seen.output.flatten(0, 1))]
        self.means[seen.of].add(len(seen.separators), torch.stack(sums))
        self.heads = seen.attention.shape[1]

    def frame(self) -> pd.DataFrame:
        parts = []
        for of, mean in self.means.items():
            (divergence, cosine), halves = mean.told()
            first, second = np.triu_indices(len(divergence), 1)
            named = clusters(divergence)
            columns: dict[str, object] = {"attention": of}
            for prefix, heads in (("", first), ("other_", second)):
                columns[f"{prefix}layer"], columns[f"{prefix}head"] = divmod(heads, self.heads)
            columns |= {
                "divergence": divergence[first, second],
                f"divergence{HALF}": halves[0][first, second],
                "cosine": cosine[first, second],
                f"cosine{HALF}": halves[1][first, second],
                "cluster": named[first],
                "other_cluster": named[second],
            }
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)


def divergences(attention: Float[Tensor, "heads n n"]) -> Float[Tensor, "heads heads"]:
    """The Jensen-Shannon divergence of the rows of each pair of heads, nats, added up over rows."""
    heads, n, _ = attention.shape
    found = torch.zeros(heads, heads, dtype=torch.double)
    # Some rows and one head at a time: all at once would hold heads² matrices.
    for some in attention.split(max(1, PART // (heads * n)), dim=1):
        rows = (1 - SMOOTHING) * some.double() + SMOOTHING / n
        own = entr(rows).sum(dim=-1)
        for head in range(heads):
            mixed = rows[head:].add(rows[head]).div_(2)
            apart = entr(mixed).sum(dim=-1) - (own[head:] + own[head]) / 2
            found[head, head:] += apart.sum(dim=-1)
    return found + found.triu(1).T


def cosines(output: Float[Tensor, "heads n width"]) -> Float[Tensor, "heads heads"]:
    """The cosine of what each pair of heads puts out for a token, added up over tokens; 0 where one
    puts out 0.
    """
    unit = torch.nn.functional.normalize(output.double(), dim=-1).flatten(1)
    return unit @ unit.T


def clusters(divergence: Float[np.ndarray, "heads heads"]) -> np.ndarray:
    """The number of each head's cluster, from 1."""
    if len(divergence) < 2:
        return np.ones(len(divergence), dtype=int)
    # Rounding may leave a divergence just below 0.
    distances = squareform(np.maximum(divergence, 0), checks=False)
    return fcluster(linkage(distances, "average"), CUT * distances.mean(), "distance")


def heads_by_cluster(pairs: pd.DataFrame) -> pd.DataFrame:
    """The heads of one attention, those of a cluster together: ``number`` of the head, its ``name``
    as layer.head, its ``cluster``, the most alike head ``nearest``, and the ``divergence`` from it.
    """
    first = (pairs["layer"] == 0) & (pairs["head"] == 0)
    columns = ["layer", "head", "cluster"]
    others = [f"other_{name}" for name in columns]
    rows = np.vstack([pairs[columns][:1].to_numpy(), pairs.loc[first, others].to_numpy()])
    names = np.array([f"{layer}.{head}" for layer, head, _ in rows])
    apart = squareform(pairs["divergence"].to_numpy())
    np.fill_diagonal(apart, np.inf)
    heads = {
        "number": np.arange(len(names)),
        "name": names,
        "cluster": rows[:, 2],
        "nearest": names[apart.argmin(axis=1)],
        "divergence": apart.min(axis=1),
    }
    return pd.DataFrame(heads).sort_values("cluster", kind="stable")
