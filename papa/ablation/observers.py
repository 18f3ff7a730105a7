"""What substitutes learn of text: averages of attention and outputs, summed in float64, and mean
queries and keys.

The last are of models with rotary positions (the score behind DuoAttention's heads in kvpress);
``papa.attention.mean_qk`` is the same of the encoders that papa loads.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from papa.ablation.interface import LayerAttention
from papa.ablation.substitutes import (
    ByDistance,
    ByPosition,
    Donor,
    MeanOutput,
    Resampled,
    Substitute,
    last_tokens,
    places_of,
    weighted,
)
from papa.attention.constants import APART
from papa.errors import EncoderError

Rotation = tuple[Float[Tensor, "#batch tokens width"], Float[Tensor, "#batch tokens width"]]
"""Cosine and sine of each token's position, as a model hands them to its attention."""


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
    """What heads put out in two texts of each length, as far as there are two, drawn among the
    texts seen, so that one of them is another; all layers have the same texts.
    """

    seed: int
    kept: dict[tuple[int, int], list[Donor]] = field(default_factory=lambda: defaultdict(list))
    draws: dict[tuple[int, int], random.Random] = field(default_factory=dict)
    seen: dict[tuple[int, int], set[bytes | int]] = field(default_factory=lambda: defaultdict(set))

    def see(self, attention: LayerAttention, layer: int) -> None:
        outputs = attention.output(attention.every_head())
        texts = attention.texts or [None] * len(outputs)
        for row, real, text in zip(outputs, attention.real_queries, texts, strict=True):
            length = int(real.sum())
            at = layer, length
            name = len(self.seen[at]) if text is None else text
            if not length or name in self.seen[at]:
                continue
            self.seen[at].add(name)
            # The same stream of numbers for every layer: a reservoir of two.
            draw = self.draws.setdefault(at, random.Random(f"{self.seed} {length}"))
            place = draw.randrange(len(self.seen[at]))
            donor = Donor(text, row[:, real].clone())
            if len(self.kept[at]) < 2:
                self.kept[at].insert(place, donor)
            elif place < 2:
                self.kept[at][place] = donor

    def result(self) -> Resampled:
        donors: dict[int, list[Donor]] = defaultdict(list)
        for (layer, _), own in sorted(self.kept.items(), key=lambda item: item[0]):
            donors[layer] += own
        return Resampled(donors)


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


@dataclass(frozen=True)
class ByMeanScores:
    """softmax over the tokens that a token may see, of scores by distance.

    s[layer, head, d] is of a token and the one ``d`` before it; the middle entry is d = 0. A
    distance beyond the first or the last entry has that entry's.
    """

    scores: Float[Tensor, "layers heads distances"]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        scores = self.scores[layer].to(attention.value.device)[heads]
        reach = scores.shape[-1] // 2

        def rows(part: LayerAttention) -> Tensor:
            apart = part.query_slots[:, :, None] - part.key_slots[:, None, :]
            found = scores[:, apart.clamp(-reach, reach) + reach].transpose(0, 1)
            return (found - found.amax(dim=-1, keepdim=True)).exp()

        return weighted(rows, attention, heads)


@dataclass
class MeanQueriesAndKeys:
    """Means of queries and keys over all real tokens, before their rotation."""

    sums: dict[int, Float[Tensor, "2 heads width"]] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    _rotation: dict[int, tuple[nn.Module, Any]] = field(default_factory=dict)
    _longest: dict[int, int] = field(default_factory=dict)
    _of_longest: dict[int, Callable[[Tensor], Tensor]] = field(default_factory=dict)

    @contextmanager
    def watching(self, modules: Sequence[nn.Module]) -> Iterator[None]:
        """Inside the block, what each attention module is told of positions is known."""
        with ExitStack() as after:
            for layer, module in enumerate(modules):
                see = partial(self._see_rotation, layer, inspect.signature(module.forward))
                after.callback(module.register_forward_pre_hook(see, with_kwargs=True).remove)
            yield

    def _see_rotation(
        self, layer: int, signature: inspect.Signature, module: nn.Module, given: Any, named: Any
    ) -> None:
        known = signature.bind_partial(*given, **named).arguments
        self._rotation[layer] = module, known.get("position_embeddings")

    def see(self, attention: LayerAttention, layer: int) -> None:
        module, rotation = self._rotation[layer]
        rotate, (cos, sin) = _rotation_of(module, rotation, attention)
        own = slice(attention.first, attention.first + attention.query.shape[-2])
        squares = cos.square() + sin.square()
        turned_back = torch.stack(
            rotate(attention.query, attention.key[:, :, own], cos / squares, -sin / squares)
        )
        real = attention.real_queries
        sums = (turned_back.double() * real[:, None, :, None]).sum(dim=(1, 3))
        self.sums[layer] = self.sums.get(layer, 0.0) + sums
        self.tokens[layer] = self.tokens.get(layer, 0) + int(real.sum())
        lengths = real.sum(dim=1)
        if int(lengths.max()) > self._longest.get(layer, 0):
            row, self._longest[layer] = int(lengths.argmax()), int(lengths.max())
            of_row = [part[min(row, len(part) - 1)][real[row]][None] for part in (cos, sin)]
            self._of_longest[layer] = partial(
                _scores, rotate, of_row, attention.scaling, attention.softcap
            )

    def result(self) -> ByMeanScores:
        every = [
            self._of_longest[layer](self.sums[layer] / self.tokens[layer])
            for layer in sorted(self.sums)
        ]
        return ByMeanScores(torch.stack(every))


def _scores(
    rotate: Callable[..., tuple[Tensor, Tensor]],
    rotation: Sequence[Tensor],
    scaling: float,
    softcap: float | None,
    means: Float[Tensor, "2 heads width"],
) -> Float[Tensor, "heads distances"]:
    """Scores of the means at every distance that the longest text has, farthest ahead first."""
    means = means.to(rotation[0].dtype)
    everywhere = means[:, None, :, None].expand(-1, 1, -1, rotation[0].shape[1], -1)
    query, key = (turned[0] for turned in rotate(everywhere[0], everywhere[1], *rotation))
    ahead = (query[:, :1] * key).sum(dim=-1)
    behind = (query * key[:, :1]).sum(dim=-1)
    scores = torch.cat([ahead.flip(-1), behind[:, 1:]], dim=-1) * scaling
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def _rotation_of(
    module: nn.Module, rotation: Any, attention: LayerAttention
) -> tuple[Callable[..., tuple[Tensor, Tensor]], Rotation]:
    """What turns queries and keys of a layer, and by how much."""
    rotate = getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
    expected = (attention.query.shape[-2], attention.query.shape[-1])
    whole = (
        isinstance(rotation, tuple)
        and len(rotation) == 2
        and all(isinstance(part, Tensor) and part.dim() == 3 for part in rotation)
        and all(tuple(part.shape[1:]) == expected for part in rotation)
    )
    if rotate is None or not whole:
        raise EncoderError(
            f"by='mean_qk' needs rotary positions of whole heads, and {type(module).__name__} has "
            "none: take 'relative'"
        )
    return rotate, rotation
