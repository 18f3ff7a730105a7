"""Patterns of constant matrices (paper, Section 5.1).

Every measure is taken over text rows, those that are not [CLS] or [SEP], and over seen entries,
with each row divided by its sum. A row counts as often as the average saw its slot, so that a head
is judged by the text it met and not by the few longest inputs; rows without any weight, as in
pruned heads, count for nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

MAX_OFFSET = 3
"""How many slots a diagonal may be away from the main one."""
DIAGONAL_ROWS = 0.5
"""A diagonal head: this share of rows has its largest entry among text slots on one diagonal …"""
DIAGONAL_MASS = 0.1
"""… and puts this much attention there on average: a faint trace beside [SEP] is no pattern."""
SPECIAL_MASS = 0.5
"""A special head: rows put this much, or more, on [CLS] and [SEP] on average."""
CONCENTRATED = 0.5
"""A concentrated head: the largest entry of a row holds this much or more on average."""


class HeadPatterns(NamedTuple):
    """The patterns of each head's constant matrix.

    Attributes:
        offset: the diagonal with most of the rows' largest entries: +1 is the next slot, -1 the one
            before.
        diagonal_mass, cls_mass, sep_mass: the mean weight there, on [CLS], and on all [SEP].
        largest_entry: the mean of the rows' largest entries, [CLS] and [SEP] included.
        diagonal, special, concentrated: heads with that pattern.
    """

    offset: Int[Tensor, "layers heads"]
    diagonal_mass: Float[Tensor, "layers heads"]
    cls_mass: Float[Tensor, "layers heads"]
    sep_mass: Float[Tensor, "layers heads"]
    largest_entry: Float[Tensor, "layers heads"]
    diagonal: Bool[Tensor, "layers heads"]
    special: Bool[Tensor, "layers heads"]
    concentrated: Bool[Tensor, "layers heads"]

    def summary(self) -> dict[str, float]:
        """Return shares of heads by pattern and mean weights over heads, by columns of a table."""
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
    or whether there are any, which gives all rows the same weight. ``special`` is the slot of
    [CLS], then those of [SEP].
    """
    slots = matrices.shape[-1]
    has_entry = counts > 0
    slot_ids = torch.arange(slots)
    offsets = torch.arange(-MAX_OFFSET, MAX_OFFSET + 1)
    is_text = torch.ones(slots, dtype=torch.bool)
    is_text[list(special)] = False
    masked = matrices.double() * has_entry
    sums = masked.sum(dim=-1, keepdim=True)
    weights = masked / sums.where(sums > 0, 1)
    row_weights = counts.diagonal().double() * is_text * (sums.squeeze(-1) > 0)

    def mean(values: Tensor, row_weights: Tensor = row_weights) -> Tensor:
        """Return the weighted mean over rows; 0 if no row counts."""
        total = row_weights.sum(dim=-1)
        return ((values * row_weights).sum(dim=-1) / total.where(total > 0, 1)).float()

    # [CLS] and [SEP] are left out: a row that rests on them still shows where it looks in the text.
    largest_in_text, column_of_largest = (weights * (is_text & has_entry)).max(dim=-1)
    # Only strictly positive entries can be a row's largest: an empty row points nowhere.
    offset_of_largest = (column_of_largest - slot_ids).where(largest_in_text > 0, slots)
    # Entry (i, i + offset) of every row i; rows at the border, whose slot at this offset is no text
    # slot, cannot show the diagonal.
    columns = slot_ids + offsets[:, None]
    inside = columns.clamp(0, slots - 1)
    possible = (columns == inside) & (is_text & has_entry)[slot_ids, inside]
    possible_weights = row_weights[..., None, :] * possible
    mass_by_offset = mean(weights[..., slot_ids, inside] * possible, possible_weights)
    is_largest = offset_of_largest[..., None, :] == offsets[:, None]
    best = mean(is_largest.double(), possible_weights).max(dim=-1)
    diagonal_mass = mass_by_offset.gather(-1, best.indices[..., None]).squeeze(-1)
    cls_mass = mean(weights[..., special[0]])
    sep_mass = mean(weights[..., list(special[1:])].sum(dim=-1))
    largest_entry = mean(weights.amax(dim=-1))
    return HeadPatterns(
        offset=offsets[best.indices],
        diagonal_mass=diagonal_mass,
        cls_mass=cls_mass,
        sep_mass=sep_mass,
        largest_entry=largest_entry,
        diagonal=(best.values >= DIAGONAL_ROWS) & (diagonal_mass >= DIAGONAL_MASS),
        special=cls_mass + sep_mass >= SPECIAL_MASS,
        concentrated=largest_entry >= CONCENTRATED,
    )
