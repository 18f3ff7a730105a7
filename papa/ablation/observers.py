"""What substitutes learn of text: averages of attention and of outputs, summed over passes of the model in float64."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.ablation.interface import LayerAttention
from papa.ablation.substitutes import ByDistance, ByPosition, MeanOutput, Resampled

_REACH = 512
_FIRST = 1
"""Of a relative constant: distances apart, and first tokens with a column of their own."""


@dataclass
class AverageByPosition:
    """Entry-wise means of A over the inputs in which both tokens are real (Hassid et al., 2022, Section 3.1)."""

    sums: dict[int, Float[Tensor, "heads slots slots"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, "slots slots"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> None:
        weights, pairs = _weights_of_pairs(attention)
        slots = max(int(attention.key_slots.max()) + 1, self.counts[layer].shape[-1] if layer in self.counts else 0)
        heads = weights.shape[1]
        sums, counts = weights.new_zeros(heads, slots, slots), weights.new_zeros(slots, slots)
        if layer in self.counts:
            known = self.counts[layer].shape[-1]
            sums[:, :known, :known], counts[:known, :known] = self.sums[layer], self.counts[layer]
        places = _flat_places(attention, slots, weights.shape[0])
        sums.view(heads, -1).index_add_(1, places, weights.transpose(0, 1).reshape(heads, -1))
        counts.view(-1).index_add_(0, places, pairs.double().flatten())
        self.sums[layer], self.counts[layer] = sums, counts

    def result(self) -> ByPosition:
        layers = [self.sums[layer] / self.counts[layer].clamp(min=1) for layer in sorted(self.sums)]
        return ByPosition(torch.stack(layers).float())


@dataclass
class AverageByDistance:
    """Means of A along diagonals; the columns of the first tokens, on which heads rest, are kept apart."""

    sums: dict[int, Float[Tensor, "heads distances"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, " distances"]] = field(default_factory=dict)
    first_sums: dict[int, Float[Tensor, "heads first"]] = field(default_factory=dict)
    first_counts: dict[int, Float[Tensor, " first"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> None:
        weights, pairs = _weights_of_pairs(attention)
        heads = weights.shape[1]
        if layer not in self.sums:
            self.sums[layer], self.counts[layer] = (
                weights.new_zeros(heads, 2 * _REACH + 1),
                weights.new_zeros(2 * _REACH + 1),
            )
            self.first_sums[layer], self.first_counts[layer] = (
                weights.new_zeros(heads, _FIRST),
                weights.new_zeros(_FIRST),
            )
        queries, keys = attention.query_slots[:, :, None], attention.key_slots[:, None, :]
        shape = (weights.shape[0], *weights.shape[-2:])
        distances = ((queries - keys).clamp(-_REACH, _REACH) + _REACH).expand(shape)
        columns = keys.expand(shape)
        flat = weights.transpose(0, 1)
        for first, places, sums, counts in (
            (False, distances, self.sums[layer], self.counts[layer]),
            (True, columns.clamp(max=_FIRST - 1), self.first_sums[layer], self.first_counts[layer]),
        ):
            chosen = (pairs & ((columns < _FIRST) == first)).flatten()
            at = places.flatten()[chosen]
            sums.index_add_(1, at, flat.reshape(heads, -1)[:, chosen])
            counts.index_add_(0, at, torch.ones_like(at, dtype=torch.float64))

    def result(self) -> ByDistance:
        def means(sums: dict[int, Tensor], counts: dict[int, Tensor]) -> Tensor:
            return torch.stack([sums[layer] / counts[layer].clamp(min=1) for layer in sorted(sums)]).float()

        return ByDistance(means(self.sums, self.counts), means(self.first_sums, self.first_counts))


@dataclass
class MeanOfOutputs:
    """Means of what heads put out, over all real tokens."""

    sums: dict[int, Float[Tensor, "heads width"]] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def see(self, attention: LayerAttention, layer: int) -> None:
        real = attention.real_queries
        outputs = attention.output(attention.every_head()).double() * real[:, None, :, None]
        self.sums[layer] = self.sums.get(layer, 0.0) + outputs.sum(dim=(0, 2))
        self.tokens[layer] += int(real.sum())

    def result(self) -> MeanOutput:
        return MeanOutput({layer: sums / self.tokens[layer] for layer, sums in self.sums.items()})


@dataclass
class DrawnOutputs:
    """What heads put out in one text of each length, drawn among the texts seen.

    Attributes:
        seed: of the draw; all layers of a length have the same text.
    """

    seed: int
    texts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    kept: dict[int, dict[int, Float[Tensor, "heads tokens width"]]] = field(default_factory=lambda: defaultdict(dict))
    draws: dict[tuple[int, int], random.Random] = field(default_factory=dict)
    seen: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def see(self, attention: LayerAttention, layer: int) -> None:
        outputs = attention.output(attention.every_head())
        for row, real in zip(outputs, attention.real_queries, strict=True):
            length = int(real.sum())
            place = layer, length
            # The same stream of numbers for every layer: a reservoir of one.
            draw = self.draws.setdefault(place, random.Random(f"{self.seed} {length}"))
            self.seen[place] += 1
            if length and draw.random() * self.seen[place] < 1:
                self.kept[layer][length] = row[:, real].clone()

    def result(self) -> Resampled:
        return Resampled(self.kept)


Observer = AverageByPosition | AverageByDistance | MeanOfOutputs | DrawnOutputs


def _weights_of_pairs(
    attention: LayerAttention,
) -> tuple[Float[Tensor, "batch heads queries keys"], Bool[Tensor, "batch queries keys"]]:
    """A in float64, zero outside of real pairs, and which pairs are real."""
    pairs = attention.allowed[:, 0] & attention.real_queries[:, :, None]
    return attention.probabilities(attention.every_head()).double() * pairs[:, None], pairs


def _flat_places(attention: LayerAttention, slots: int, batch: int) -> Int[Tensor, " pairs"]:
    places = attention.query_slots[:, :, None] * slots + attention.key_slots[:, None, :]
    return places.expand(batch, -1, -1).flatten()
