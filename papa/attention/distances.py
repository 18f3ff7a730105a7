"""What a token takes from another by the distance between them, in inputs whose tokens stand side
by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.product import masked_product

APART = 2
"""Tokens with a weight of their own, as heads rest on them: the first, and an encoder's last."""


@dataclass(frozen=True)
class DistanceWeights:
    """A constant for each distance between two tokens, and for a text's ends wherever a token
    stands.

    Attributes:
        weights: r[layer, head, d], what a token takes from the one ``d`` before it; the middle
            entry is d = 0. A distance beyond the first or the last entry has that entry's.
        ends: weights of the first token, and of the last one in an encoder.
    """

    weights: Float[Tensor, "layers heads distances"]
    ends: Float[Tensor, "layers heads 2"]
    kind: ClassVar[str] = "relative by distance"

    @property
    def values(self) -> Tensor:
        return self.weights

    @property
    def reach(self) -> int:
        """The longest distance with a weight of its own."""
        return self.weights.shape[-1] // 2

    def to(self, device: torch.device) -> DistanceWeights:
        return replace(self, weights=self.weights.to(device), ends=self.ends.to(device))

    def table(self, layer: int, heads: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen places"]:
        """What ``places`` reads."""
        return torch.cat([self.ends[layer], self.weights[layer]], dim=-1)[heads]

    def seen_at(self, positions: Int[Tensor, " m"]) -> Bool[Tensor, "m m"]:
        """Whether any input of the average had two tokens as far apart; the first token always."""
        near = (positions[:, None] - positions).abs() <= self.reach
        return near | (positions == 0)

    def product(
        self,
        layer: int,
        heads: Int[Tensor, " chosen"],
        value: Float[Tensor, "batch chosen m width"],
        positions: Int[Tensor, " m"],
        real: Bool[Tensor, "batch m"],
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch chosen m width"]:
        """Rows on real tokens, divided by their sums, times V, without a matrix for each input.

        The last token stands at another place in each input, so it is a column of its own.
        """
        last = (real.sum(dim=1) - 1)[:, None]
        table = self.table(layer, heads).to(value.dtype)
        nowhere = positions.new_full((), -1)
        shared = table[:, places(positions[:, None], positions, nowhere, self.reach)]
        ends = table[:, 1, None, None].expand(-1, positions.shape[0], -1)
        at_end = last[:, None, :, None].expand(-1, value.shape[1], -1, value.shape[-1])
        return masked_product(
            torch.cat([shared, ends], dim=-1),
            torch.cat([value, value.gather(2, at_end)], dim=2),
            torch.cat([real & (positions != last), torch.ones_like(last, dtype=torch.bool)], dim=1),
        )


def places(
    queries: Int[Tensor, "..."], keys: Int[Tensor, "..."], last: Int[Tensor, "..."], reach: int
) -> Int[Tensor, "... queries keys"]:
    """Where in a table a pair of tokens finds its weight: the first token, the last, or a distance
    from the farthest ahead to the farthest behind, of which ``reach`` have places of their own.

    Positions have shapes that make a table of pairs; ``last`` is -1 where that token is not apart.
    """
    distances = (queries - keys).clamp(-reach, reach) + reach + APART
    return torch.where(keys == 0, 0, torch.where(keys == last, 1, distances))
