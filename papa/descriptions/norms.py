"""Attention weighted by what it brings: the norms of what each token adds to another."""

from __future__ import annotations

import pandas as pd

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen


class Norms:
    """A row for each head (Kobayashi et al., 2020, Section 3).

    Token j brings ‖α_ij v_j W_O‖ to token i. ``separator_norm`` is the share of this that comes
    from separators, 0 to 1, as ``separator_mass`` is the share of α; ``own_norm`` the share that a
    token brings itself; ``added`` the norm of all that the head adds to a token, behind the output
    map. All are means over tokens.
    """

    def __init__(self) -> None:
        self.means = Means()

    def see(self, seen: Seen) -> None:
        brought = seen.attention * (seen.value @ seen.output_maps).norm(dim=-1)[:, :, None]
        shares = brought / brought.sum(dim=-1, keepdim=True).clamp_min(1e-12)
        sums = {
            "separator_norm": shares[..., seen.separators].sum(dim=(-1, -2)),
            "own_norm": shares.diagonal(dim1=-2, dim2=-1).sum(dim=-1),
            "added": (seen.output @ seen.output_maps).norm(dim=-1).sum(dim=-1),
        }
        self.means.add(seen.of, len(seen.separators), sums)

    def frame(self) -> pd.DataFrame:
        return self.means.frame()
