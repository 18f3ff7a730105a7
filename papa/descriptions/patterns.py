"""What constant matrices look like (paper, Section 5.1).

Every measure is taken over text rows, those that are not [CLS] or [SEP], and over seen entries,
with each row divided by its sum. A row counts as often as the average saw its slot, so that a head
is judged by the text it met and not by the few longest inputs; rows without any weight, as in
pruned heads, count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

MAX_OFFSET = 3
"""Diagonals up to this many slots away from the main one are looked at."""
DIAGONAL_ROWS = 0.5
"""A diagonal head: this share of rows has its largest entry among text slots on one diagonal …"""
DIAGONAL_MASS = 0.1
"""… and puts this much attention there on average: a faint trace beside [SEP] is no pattern."""
SPECIAL_MASS = 0.5
"""A special head: rows put this much, or more, on [CLS] and [SEP] on average."""
CONCENTRATED = 0.5
"""A concentrated head: the largest entry of a row holds this much or more on average."""


class HeadPatterns(NamedTuple):
    """What each head's constant matrix looks like.

    Attributes:
        offset: the diagonal with most of the rows' largest entries: +1 is the next slot, -1 the one
            before.
        diagonal_rows: the share of rows whose largest entry among text slots lies on that diagonal,
            0 to 1.
        diagonal_mass, cls_mass, sep_mass: the mean weight there, on [CLS], and on all [SEP].
        largest_entry: the mean of the rows' largest entries, [CLS] and [SEP] included.
        diagonal, special, concentrated: heads with that pattern.
    """

    offset: Int[Tensor, "layers heads"]
    diagonal_rows: Float[Tensor, "layers heads"]
    diagonal_mass: Float[Tensor, "layers heads"]
    cls_mass: Float[Tensor, "layers heads"]
    sep_mass: Float[Tensor, "layers heads"]
    largest_entry: Float[Tensor, "layers heads"]
    diagonal: Bool[Tensor, "layers heads"]
    special: Bool[Tensor, "layers heads"]
    concentrated: Bool[Tensor, "layers heads"]

    def summary(self) -> dict[str, float]:
        """Shares of heads by pattern and mean weights over heads, by columns of a table."""
        columns = {
            "diagonal heads": self.diagonal,
            "special heads": self.special,
            "concentrated heads": self.concentrated,
            "diagonal weight": self.diagonal_mass,
            "[CLS] weight": self.cls_mass,
            "[SEP] weight": self.sep_mass,
            "largest entry": self.largest_entry,
        }
        return {name: float(values.double().mean()) for name, values in columns.items()}


def head_patterns(
    matrices: Float[Tensor, "layers heads slots slots"],
    counts: Shaped[Tensor, "slots slots"],
    special: Sequence[int],
) -> HeadPatterns:
    """Measure every head's C, not normalised. ``counts`` are the inputs with tokens at both slots;
    or whether any had, which weighs all rows alike.
    """
    slots, seen = matrices.shape[-1], counts > 0
    places, offsets = torch.arange(slots), torch.arange(-MAX_OFFSET, MAX_OFFSET + 1)
    text = torch.ones(slots, dtype=torch.bool)
    text[list(special)] = False
    masked = matrices.double() * seen
    sums = masked.sum(dim=-1, keepdim=True)
    weights = masked / sums.where(sums > 0, 1)
    rows = counts.diagonal().double() * text * (sums.squeeze(-1) > 0)

    def mean(values: Tensor, rows: Tensor = rows) -> Tensor:
        """Over rows, weighted; 0 where no row counts."""
        total = rows.sum(dim=-1)
        return ((values * rows).sum(dim=-1) / total.where(total > 0, 1)).float()

    # [CLS] and [SEP] are left out: a row that rests on them still shows where it looks in the text.
    largest_text, at = (weights * (text & seen)).max(dim=-1)
    # Only strictly positive entries can be a row's largest: an empty row points nowhere.
    points_to = (at - places).where(largest_text > 0, slots)
    # Entry (i, i + offset) of every row i; rows at the border, whose slot at this offset is no text
    # slot, cannot show the diagonal.
    columns = places + offsets[:, None]
    inside = columns.clamp(0, slots - 1)
    possible = (columns == inside) & (text & seen)[places, inside]
    on_offset = weights[..., places, inside] * possible, points_to[..., None, :] == offsets[:, None]
    mass, share = (mean(one.double(), rows[..., None, :] * possible) for one in on_offset)
    best = share.max(dim=-1)
    diagonal_mass = mass.gather(-1, best.indices[..., None]).squeeze(-1)
    on_cls = mean(weights[..., special[0]])
    on_sep = mean(weights[..., list(special[1:])].sum(dim=-1))
    largest = mean(weights.amax(dim=-1))
    return HeadPatterns(
        *(offsets[best.indices], best.values, diagonal_mass, on_cls, on_sep, largest),
        diagonal=(best.values >= DIAGONAL_ROWS) & (diagonal_mass >= DIAGONAL_MASS),
        special=on_cls + on_sep >= SPECIAL_MASS,
        concentrated=largest >= CONCENTRATED,
    )
