"""Heads that do nothing: they look at separators and add little."""

from __future__ import annotations

import pandas as pd

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen


class Separators:
    """A row for each head (Bondarenko et al., 2023, Section 3).

    ``separator_mass`` is the attention that tokens put on separators, 0 to 1; ``update`` the norm
    of what the head puts out for a token, before the layer's output map. Both are means over
    tokens.
    """

    def __init__(self) -> None:
        self.means = Means()

    def see(self, seen: Seen) -> None:
        mass = seen.attention[..., seen.separators].sum(dim=(-1, -2))
        update = seen.output.norm(dim=-1).sum(dim=-1)
        sums = {"separator_mass": mass, "update": update}
        self.means.add(seen.of, len(seen.separators), sums)

    def frame(self) -> pd.DataFrame:
        return self.means.frame()
