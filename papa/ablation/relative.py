"""A constant for each distance between two tokens: the natural constant of decoders, for texts of any length."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.ablation.interface import LayerAttention
from papa.ablation.observers import weights_of_pairs
from papa.ablation.substitutes import weighted

_FIRST = 1
"""First tokens with a column of their own: heads rest on them."""


@dataclass(frozen=True)
class ByDistance:
    """What a token takes from another by the distance between them, and from the first tokens wherever it stands.

    Attributes:
        weights: r[layer, head, d], what a token takes from the one ``d`` before it; the middle entry is d = 0. A
            distance beyond the first or the last entry has that entry's.
        first: weights of the first tokens, as far as they are kept apart.
    """

    weights: Float[Tensor, "layers heads distances"]
    first: Float[Tensor, "layers heads first"]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        device = attention.value.device
        weights, first = self.weights[layer].to(device)[heads], self.first[layer].to(device)[heads]
        reach, count = weights.shape[-1] // 2, first.shape[-1]

        def rows(part: LayerAttention) -> Tensor:
            keys = part.key_slots[:, None, :]
            found = weights[:, (part.query_slots[:, :, None] - keys).clamp(-reach, reach) + reach]
            apart = first[:, keys.clamp(max=count - 1)]
            return torch.where(keys < count, apart, found).transpose(0, 1)

        return weighted(rows, attention, heads)


@dataclass
class AverageByDistance:
    """Means of A along diagonals, with the columns of the first tokens apart; no matrix of positions is ever held."""

    sums: dict[int, Float[Tensor, "heads first_and_distances"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, " first_and_distances"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> None:
        self._make_room(attention, layer)
        sums, counts = self.sums[layer], self.counts[layer]
        middle = (len(counts) + _FIRST) // 2
        for part in attention.parts():
            weights, pairs = weights_of_pairs(part)
            keys = part.key_slots[:, None, :]
            places = torch.where(keys < _FIRST, keys, part.query_slots[:, :, None] - keys + middle)
            at = places.expand(pairs.shape).flatten()
            sums.index_add_(1, at, weights.transpose(0, 1).flatten(1))
            counts.index_add_(0, at, pairs.double().flatten())

    def _make_room(self, attention: LayerAttention, layer: int) -> None:
        """Distances of both signs, up to that of this text's ends."""
        if layer not in self.sums:
            heads = attention.query.shape[1]
            self.sums[layer] = attention.query.new_zeros(heads, _FIRST + 1, dtype=torch.float64)
            self.counts[layer] = attention.query.new_zeros(_FIRST + 1, dtype=torch.float64)
        longest = int(attention.key_slots.max())
        if (more := longest - (len(self.counts[layer]) - _FIRST) // 2) > 0:
            for held in (self.sums, self.counts):
                first, distances = held[layer].split([_FIRST, held[layer].shape[-1] - _FIRST], dim=-1)
                held[layer] = torch.cat([first, F.pad(distances, (more, more))], dim=-1)

    def result(self) -> ByDistance:
        means = {layer: sums / self.counts[layer].clamp(min=1) for layer, sums in sorted(self.sums.items())}
        near = [own[:, _FIRST:][:, _last_seen(self.counts[layer][_FIRST:] > 0)] for layer, own in means.items()]
        first = [own[:, :_FIRST] for own in means.values()]
        return ByDistance(torch.stack(near).float(), torch.stack(first).float())


def _last_seen(seen: Bool[Tensor, " distances"]) -> Int[Tensor, " distances"]:
    """For each distance itself, or where no text had it the farthest nearer one that a text had."""
    middle = len(seen) // 2
    behind, ahead = (
        torch.where(side, torch.arange(middle + 1, device=seen.device), 0).cummax(dim=0).values
        for side in (seen[: middle + 1].flip(0), seen[middle:])
    )
    return torch.cat([(middle - behind).flip(0), middle + ahead[1:]])
