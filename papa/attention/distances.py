"""Constants by the distance of two tokens, for texts of any length: averages of attention, and
scores of mean queries and mean keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.substitutes import Weights
from papa.encoders.dispatch import Heads, LayerAttention, indices

APART = 2
"""Tokens with a weight of their own, as heads rest on them: the first, and an encoder's last."""


@dataclass(frozen=True)
class ByDistance(Weights):
    """What a token takes from another by the distance between them, and from a text's ends wherever
    it stands.

    Attributes:
        weights: r[layer, head, d], what a token takes from the one ``d`` before it; the middle
            entry is d = 0. A distance beyond the first or the last entry has that entry's.
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
    """Where in a table a pair of tokens finds its weight: the first token, the last, or a distance
    from the farthest ahead to the farthest behind, of which ``reach`` have places of their own.
    """
    keys = part.key_slots[:, None, :]
    distances = (part.query_slots[:, :, None] - keys).clamp(-reach, reach) + reach + APART
    return torch.where(keys == 0, 0, torch.where(keys == part.last_slots, 1, distances))


@dataclass
class AverageByDistance:
    """Means of A along diagonals, with the columns of a text's ends apart."""

    sums: dict[int, Float[Tensor, "heads ends_and_distances"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, " ends_and_distances"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> Tensor:
        self._make_room(attention, layer)
        sums, counts = self.sums[layer], self.counts[layer]
        for part in attention.parts():
            pairs = part.real_queries[:, :, None].expand(-1, -1, part.key.shape[-2])
            pairs = pairs if part.mask is None else pairs & part.mask[:, 0]
            weights = part.probabilities(part.every).double() * pairs[:, None]
            at = places(part, (len(counts) - APART) // 2).expand(pairs.shape).flatten()
            sums.index_add_(1, at, weights.transpose(0, 1).flatten(1))
            counts.index_add_(0, at, pairs.double().flatten())
        return attention.output(attention.every)

    def _make_room(self, attention: LayerAttention, layer: int) -> None:
        """Distances of both signs, up to that of this text's ends."""
        if layer not in self.sums:
            heads, value = len(attention.every), attention.value
            self.sums[layer] = value.new_zeros(heads, APART + 1, dtype=torch.float64)
            self.counts[layer] = value.new_zeros(APART + 1, dtype=torch.float64)
        if (more := attention.longest - 1 - (len(self.counts[layer]) - APART) // 2) > 0:
            for held in (self.sums, self.counts):
                ends, distances = held[layer].split([APART, held[layer].shape[-1] - APART], dim=-1)
                held[layer] = torch.cat([ends, F.pad(distances, (more, more))], dim=-1)

    def substitute(self) -> ByDistance:
        near, ends = list[Tensor](), list[Tensor]()
        for layer, sums in sorted(self.sums.items()):
            counts = self.counts[layer]
            means = sums / counts.clamp(min=1)
            near.append(means[:, APART:][:, _last_seen(counts[APART:] > 0)])
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
