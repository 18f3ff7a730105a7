"""Averages of attention by the distance of two tokens, for texts of any length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.heads.substitutes import Weights
from papa.models.layer import Heads, LayerAttention, indices

APART = 2
"""Tokens with a weight of their own, as heads rest on them: the first, and an encoder's last."""


@dataclass(frozen=True)
class ByDistance(Weights):
    """What a token takes from another by the distance between them, and from a text's ends.

    Attributes:
        weights: r[layer, head, d], what a token takes from the one ``d`` before it; d = 0 is in the
            middle. A distance beyond the first or the last entry has that entry's.
        ends: weights of the first token, and of the last one in an encoder.
    """

    weights: Float[Tensor, "layers heads distances"]
    ends: Float[Tensor, "layers heads 2"]
    kind: ClassVar[str] = "relative by distance"

    def rows(self, part: LayerAttention, layer: int, heads: Heads) -> Tensor:
        table = torch.cat([self.ends[layer], self.weights[layer]], dim=-1).to(part.value.device)
        at = places(part, self.weights.shape[-1] // 2)
        return table[indices(heads, table.device)][:, at].transpose(0, 1)


def places(part: LayerAttention, reach: int) -> Int[Tensor, "#batch queries keys"]:
    """Where pairs find theirs in a table of the first key, the last one, and 2 · ``reach`` + 1
    distances, farthest ahead first.
    """
    keys = part.key_slots[:, None, :]
    apart = (part.query_slots[:, :, None] - keys).clamp(-reach, reach) + reach + APART
    return torch.where(keys == 0, 0, torch.where(keys == part.ends, 1, apart))


@dataclass
class AverageByDistance:
    """Means of A along diagonals, a text's ends apart; the last row of the sums counts pairs."""

    sums: dict[int, Float[Tensor, "rows places"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> Tensor:
        empty = attention.value.new_zeros(len(attention.every) + 1, APART + 1, dtype=torch.float64)
        sums = self.sums.get(layer, empty)
        if (more := attention.longest - 1 - (sums.shape[1] - APART) // 2) > 0:
            sums = torch.cat([sums[:, :APART], F.pad(sums[:, APART:], (more, more))], dim=1)
        self.sums[layer] = sums
        for part in attention.parts():
            pairs = part.real[:, :, None].expand(-1, -1, part.key.shape[-2])
            pairs = pairs if part.mask is None else pairs & part.mask[:, 0]
            weights = part.probabilities(part.every).double() * pairs[:, None]
            at = places(part, (sums.shape[1] - APART) // 2).expand(pairs.shape).flatten()
            sums[:-1].index_add_(1, at, weights.transpose(0, 1).flatten(1))
            sums[-1].index_add_(0, at, pairs.double().flatten())
        return attention.output(attention.every)

    def substitute(self) -> ByDistance:
        near, ends = list[Tensor](), list[Tensor]()
        for _, sums in sorted(self.sums.items()):
            means = sums[:-1] / sums[-1].clamp(min=1)
            near.append(means[:, APART:][:, _last_seen(sums[-1, APART:] > 0)])
            ends.append(means[:, :APART])
        return ByDistance(torch.stack(near).float(), torch.stack(ends).float())


def _last_seen(seen: Bool[Tensor, " distances"]) -> Int[Tensor, " distances"]:
    """For each distance itself, or where no text had it the farthest nearer one that a text had."""
    middle = len(seen) // 2
    behind, ahead = (
        torch.where(side, torch.arange(middle + 1, device=seen.device), 0).cummax(dim=0).values
        for side in (seen[: middle + 1].flip(0), seen[middle:])
    )
    return torch.cat([(middle - behind).flip(0), middle + ahead[1:]])
