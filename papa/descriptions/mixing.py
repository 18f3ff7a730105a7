"""How much attention mixes tokens, against how much of a token it keeps."""

from __future__ import annotations

import pandas as pd

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen


class Mixing:
    """A row for each layer (Kobayashi et al., 2021, Section 3).

    ``mixing`` is m / (m + k), where m is the norm of what all heads bring a token from other
    tokens and k that of what they bring it from itself; for ``mixing_with_residual`` k has the
    token's own state with it. Both are means over tokens, before any normalisation of the sum.
    """

    def __init__(self) -> None:
        self.means = Means()

    def see(self, seen: Seen) -> None:
        brought = seen.value @ seen.output_maps
        own = (seen.attention.diagonal(dim1=-2, dim2=-1)[..., None] * brought).sum(dim=1)
        others = (seen.attention @ brought).sum(dim=1) - own
        kept = own + seen.states[:-1]
        mixed = others.norm(dim=-1)
        sums = {
            name: (mixed / (mixed + vectors.norm(dim=-1)).clamp_min(1e-12)).sum(dim=-1)
            for name, vectors in (("mixing", own), ("mixing_with_residual", kept))
        }
        self.means.add(seen.of, len(seen.separators), sums)

    def frame(self) -> pd.DataFrame:
        return self.means.frame()
