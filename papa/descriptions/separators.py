"""Heads that do nothing: they look at separators and add little."""

from __future__ import annotations

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen


class Separators(Means):
    """A row for each head (Bondarenko et al., 2023, Section 3).

    Means over tokens: ``separator_mass``, the attention that they put on separators, 0 to 1, and
    ``update``, the norm of what the head puts out for one, before the layer's output map.
    """

    def see(self, seen: Seen) -> None:
        mass = seen.attention[..., seen.separators].sum(dim=(-1, -2))
        update = seen.output.norm(dim=-1).sum(dim=-1)
        sums = {"separator_mass": mass, "update": update}
        self.add(seen.of, len(seen.separators), sums)
