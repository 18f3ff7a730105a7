"""What substitutes learn of text: averages of attention and outputs, summed in float64."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.ablation.interface import LayerAttention
from papa.ablation.substitutes import (
    ByDistance,
    ByPosition,
    MeanOutput,
    Resampled,
    Substitute,
    last_tokens,
    places_of,
)
from papa.attention.distances import APART


@runtime_checkable
class Observer(Protocol):
    """What sees every layer of some passes, and makes a substitute of it."""

    def see(self, attention: LayerAttention, layer: int) -> None: ...

    def result(self) -> Substitute: ...


@dataclass
class AverageByPosition:
    """Entry-wise means of A over the inputs in which both tokens are real (paper, Section 3.1)."""

    sums: dict[int, Float[Tensor, "heads slots slots"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, "slots slots"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> None:
        known = self.counts[layer].shape[-1] if layer in self.counts else 0
        heads, slots = attention.query.shape[1], max(known, int(attention.key_slots.max()) + 1)
        sums = attention.query.new_zeros(heads, slots, slots, dtype=torch.float64)
        counts = attention.query.new_zeros(slots, slots, dtype=torch.float64)
        if known:
            sums[:, :known, :known], counts[:known, :known] = self.sums[layer], self.counts[layer]
        for part in attention.parts():
            weights, pairs = weights_of_pairs(part)
            places = part.query_slots[:, :, None] * slots + part.key_slots[:, None, :]
            at = places.expand(pairs.shape).flatten()
            sums.view(heads, -1).index_add_(1, at, weights.transpose(0, 1).flatten(1))
            counts.view(-1).index_add_(0, at, pairs.double().flatten())
        self.sums[layer], self.counts[layer] = sums, counts

    def result(self) -> ByPosition:
        layers = [self.sums[layer] / self.counts[layer].clamp(min=1) for layer in sorted(self.sums)]
        return ByPosition(torch.stack(layers).float())


@dataclass
class AverageByDistance:
    """Means of A along diagonals, with the columns of a text's ends apart."""

    sums: dict[int, Float[Tensor, "heads ends_and_distances"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, " ends_and_distances"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> None:
        self._make_room(attention, layer)
        sums, counts, last = self.sums[layer], self.counts[layer], last_tokens(attention)
        for part in attention.parts():
            weights, pairs = weights_of_pairs(part)
            at = places_of(part, last, (len(counts) - APART) // 2).expand(pairs.shape).flatten()
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
    """What heads put out in one text of each length, drawn among the texts seen; all layers of a
    length have the same text.
    """

    seed: int
    texts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    kept: dict[int, dict[int, Float[Tensor, "heads tokens width"]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    draws: dict[tuple[int, int], random.Random] = field(default_factory=dict)
    seen: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def see(self, attention: LayerAttention, layer: int) -> None:
        outputs = attention.output(attention.every_head())
        for row, real in zip(outputs, attention.real_queries, strict=True):
            length = int(real.sum())
            at = layer, length
            # The same stream of numbers for every layer: a reservoir of one.
            draw = self.draws.setdefault(at, random.Random(f"{self.seed} {length}"))
            self.seen[at] += 1
            if length and draw.random() * self.seen[at] < 1:
                self.kept[layer][length] = row[:, real].clone()

    def result(self) -> Resampled:
        return Resampled(self.kept)


def weights_of_pairs(
    attention: LayerAttention,
) -> tuple[Float[Tensor, "batch heads queries keys"], Bool[Tensor, "batch queries keys"]]:
    """A in float64, zero outside of real pairs, and which pairs are real."""
    pairs = attention.allowed[:, 0] & attention.real_queries[:, :, None]
    return attention.probabilities(attention.every_head()).double() * pairs[:, None], pairs


def _last_seen(seen: Bool[Tensor, " distances"]) -> Int[Tensor, " distances"]:
    """For each distance itself, or where no text had it the farthest nearer one that a text had."""
    middle = len(seen) // 2
    behind, ahead = (
        torch.where(side, torch.arange(middle + 1, device=seen.device), 0).cummax(dim=0).values
        for side in (seen[: middle + 1].flip(0), seen[middle:])
    )
    return torch.cat([(middle - behind).flip(0), middle + ahead[1:]])
