"""What constant matrices look like (paper, Section 5.1).

Every measure is taken over text rows, those that are not [CLS] or [SEP], and over seen entries,
with each row divided by its sum. A row counts as often as the average saw its slot, so that a head
is judged by the text it met and not by the few longest inputs; rows without any weight, as in
pruned heads, count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from papa.spec import TaskKind

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


@dataclass(frozen=True)
class HeadPatterns:
    """What each head's constant matrix looks like.

    Attributes:
        offset: the diagonal with most of the rows' largest entries: +1 is the next slot, -1 the one
            before.
        diagonal_rows: the share of rows whose largest entry among text slots lies on that diagonal,
            0 to 1.
        diagonal_mass: the mean weight there.
        cls_mass: the mean weight on [CLS].
        sep_mass: the mean weight on all [SEP].
        largest_entry: the mean of the rows' largest entries, [CLS] and [SEP] included.
    """

    offset: Int[Tensor, "layers heads"]
    diagonal_rows: Float[Tensor, "layers heads"]
    diagonal_mass: Float[Tensor, "layers heads"]
    cls_mass: Float[Tensor, "layers heads"]
    sep_mass: Float[Tensor, "layers heads"]
    largest_entry: Float[Tensor, "layers heads"]

    @property
    def diagonal(self) -> Bool[Tensor, "layers heads"]:
        """Heads with a diagonal pattern."""
        return (self.diagonal_rows >= DIAGONAL_ROWS) & (self.diagonal_mass >= DIAGONAL_MASS)

    @property
    def special(self) -> Bool[Tensor, "layers heads"]:
        """Heads with most of their weight on [CLS] and [SEP]."""
        return self.cls_mass + self.sep_mass >= SPECIAL_MASS

    @property
    def concentrated(self) -> Bool[Tensor, "layers heads"]:
        """Heads whose rows rest on one entry."""
        return self.largest_entry >= CONCENTRATED

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


def special_slots(kind: TaskKind, slots: int, *, double_separator: bool = False) -> tuple[int, ...]:
    """Where the layout puts [CLS] (first) and [SEP] (the others) in S slots; of a decoder's
    text the first slot. RoBERTa's tokenizer puts a double separator, ``</s></s>``, between two
    texts.
    """
    if kind == "causal":
        return (0,)
    if kind != "pair":
        return 0, slots - 1
    middle = (slots // 2, slots // 2 + 1) if double_separator else (slots // 2,)
    return 0, *middle, slots - 1


def head_patterns(
    matrices: Float[Tensor, "layers heads slots slots"],
    counts: Shaped[Tensor, "slots slots"],
    special: Sequence[int],
) -> HeadPatterns:
    """Measure every head's C, not normalised. ``counts`` are the inputs with tokens at both slots;
    or whether any had, which weighs all rows alike.
    """
    slots = matrices.shape[-1]
    seen = counts > 0
    text = torch.ones(slots, dtype=torch.bool)
    text[list(special)] = False
    masked = matrices.double() * seen
    sums = masked.sum(dim=-1, keepdim=True)
    weights = masked / sums.where(sums > 0, torch.ones_like(sums))
    rows = counts.diagonal().double() * text * (sums.squeeze(-1) > 0)

    # Only strictly positive entries can be a row's largest: an empty row points nowhere.
    among_text = weights.where(text & seen, torch.zeros_like(weights))
    # [CLS] and [SEP] are left out: a row that rests on them still shows where it looks in the text.
    largest_text, at = among_text.max(dim=-1)
    points_to = (at - torch.arange(slots)).where(largest_text > 0, torch.full_like(at, slots))

    shares, masses = [], []
    offsets = list(range(-MAX_OFFSET, MAX_OFFSET + 1))
    for offset in offsets:
        # Rows at the border, whose slot at this offset is no text slot, cannot show the diagonal.
        possible = rows * _along((text & seen).double(), offset)
        shares.append(_row_mean((points_to == offset).double(), possible))
        masses.append(_row_mean(_along(weights, offset), possible))
    best = torch.stack(shares).max(dim=0)
    return HeadPatterns(
        offset=torch.tensor(offsets)[best.indices],
        diagonal_rows=best.values.float(),
        diagonal_mass=torch.stack(masses).gather(0, best.indices[None]).squeeze(0).float(),
        cls_mass=_row_mean(weights[..., special[0]], rows).float(),
        sep_mass=_row_mean(weights[..., list(special[1:])].sum(dim=-1), rows).float(),
        largest_entry=_row_mean(weights.amax(dim=-1), rows).float(),
    )


def _along(
    matrices: Shaped[Tensor, "*any slots slots"], offset: int
) -> Shaped[Tensor, "*any slots"]:
    """Entry (i, i + offset) of every row i; 0 where that slot does not exist."""
    slots = matrices.shape[-1]
    columns = torch.arange(slots) + offset
    exists = (columns >= 0) & (columns < slots)
    return matrices[..., torch.arange(slots), columns.clamp(0, slots - 1)] * exists


def _row_mean(
    values: Float[Tensor, "layers heads slots"], rows: Float[Tensor, "layers heads slots"]
) -> Float[Tensor, "layers heads"]:
    """The mean over rows, weighted; 0 where no row counts."""
    total = rows.sum(dim=-1)
    return (values * rows).sum(dim=-1) / total.where(total > 0, torch.ones_like(total))
