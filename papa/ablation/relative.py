"""A constant for each distance between two tokens: a decoder's, for texts of any length."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.ablation.interface import LayerAttention
from papa.ablation.observers import weights_of_pairs
from papa.ablation.substitutes import weighted
from papa.attention.distances import APART, DistanceWeights, places


class ByDistance(DistanceWeights):
    """What a token takes from another by the distance between them, and from a text's ends wherever
    it stands.
    """

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        held, last = self.to(attention.value.device), _last(attention)
        table = held.table(layer, heads)

        def rows(part: LayerAttention) -> Tensor:
            return table[:, _places(part, last, held.reach)].transpose(0, 1)

        return weighted(rows, attention, heads)


@dataclass
class AverageByDistance:
    """Means of A along diagonals, with the columns of a text's ends apart."""

    sums: dict[int, Float[Tensor, "heads ends_and_distances"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, " ends_and_distances"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> None:
        self._make_room(attention, layer)
        sums, counts, last = self.sums[layer], self.counts[layer], _last(attention)
        for part in attention.parts():
            weights, pairs = weights_of_pairs(part)
            at = _places(part, last, (len(counts) - APART) // 2).expand(pairs.shape).flatten()
            sums.index_add_(1, at, weights.transpose(0, 1).flatten(1))
            counts.index_add_(0, at, pairs.double().flatten())

    def _make_room(self, attention: LayerAttention, layer: int) -> None:
        """Distances of both signs, up to that of this text's ends."""
        if layer not in self.sums:
            heads = attention.query.shape[1]
            self.sums[layer] = attention.query.new_zeros(heads, APART + 1, dtype=torch.float64)
            self.counts[layer] = attention.query.new_zeros(APART + 1, dtype=torch.float64)
        longest = int(attention.key_slots.max())
        if (more := longest - (len(self.counts[layer]) - APART) // 2) > 0:
            for held in (self.sums, self.counts):
                ends, distances = held[layer].split([APART, held[layer].shape[-1] - APART], dim=-1)
                held[layer] = torch.cat([ends, F.pad(distances, (more, more))], dim=-1)

    def result(self) -> ByDistance:
        means = {
            layer: sums / self.counts[layer].clamp(min=1)
            for layer, sums in sorted(self.sums.items())
        }
        near = [
            own[:, APART:][:, _last_seen(self.counts[layer][APART:] > 0)]
            for layer, own in means.items()
        ]
        ends = [own[:, :APART] for own in means.values()]
        return ByDistance(torch.stack(near).float(), torch.stack(ends).float())


def _last(attention: LayerAttention) -> Int[Tensor, "#batch 1 1"]:
    """The position of each text's last token where it is apart, else of none."""
    if attention.causal:
        return attention.key_slots.new_full((1, 1, 1), -1)
    return (attention.query_slots * attention.real_queries).amax(dim=1)[:, None, None]


def _places(
    part: LayerAttention, last: Int[Tensor, "#batch 1 1"], reach: int
) -> Int[Tensor, "#batch queries keys"]:
    """Where among the ends and the distances a pair of tokens finds its weight."""
    return places(part.query_slots[:, :, None], part.key_slots[:, None, :], last, reach)


def _last_seen(seen: Bool[Tensor, " distances"]) -> Int[Tensor, " distances"]:
    """For each distance itself, or where no text had it the farthest nearer one that a text had."""
    middle = len(seen) // 2
    behind, ahead = (
        torch.where(side, torch.arange(middle + 1, device=seen.device), 0).cummax(dim=0).values
        for side in (seen[: middle + 1].flip(0), seen[middle:])
    )
    return torch.cat([(middle - behind).flip(0), middle + ahead[1:]])
