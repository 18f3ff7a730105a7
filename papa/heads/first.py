"""All attention on the first token."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from papa.heads.substitutes import Weights
from papa.models.layer import Heads, LayerAttention


@dataclass(frozen=True)
class First(Weights):
    """Every token attends to the first of its text alone, as to the sink that heads rest on
    (Penzai's knock-out); one that may not see it puts out nothing.
    """

    def rows(self, part: LayerAttention, layer: int, heads: Heads) -> Tensor:
        return (part.key_slots == 0)[:, None, None].expand(-1, len(heads), part.query.shape[-2], -1)
