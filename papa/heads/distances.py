"""Constants by the distance of two tokens, for texts of any length: averages of attention, and
scores of mean queries and mean keys.

With rotary positions the score of a query and a key depends on their distance alone once both are
means (the score behind DuoAttention's heads in kvpress). Without them it is the same everywhere.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from papa.errors import EncoderError
from papa.heads.constants import ConstantMatrices
from papa.heads.substitutes import Weights
from papa.models.encoder import Encoder
from papa.models.layer import Heads, LayerAttention, at_least_single, indices
from papa.text.batches import MicroBatch

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


def distances(part: LayerAttention, reach: int) -> Int[Tensor, "#batch queries keys"]:
    """Where in a table of 2 · ``reach`` + 1 distances, farthest ahead first, pairs find theirs."""
    apart = part.query_slots[:, :, None] - part.key_slots[:, None, :]
    return apart.clamp(-reach, reach) + reach


def places(part: LayerAttention, reach: int) -> Int[Tensor, "#batch queries keys"]:
    """``distances``, where the first token and the last have places of their own before them."""
    keys = part.key_slots[:, None, :]
    apart = distances(part, reach) + APART
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


@dataclass(frozen=True)
class ByMeanScores(Weights):
    """softmax over the tokens that a token may see, of scores by distance, as in ``ByDistance``."""

    scores: Float[Tensor, "layers heads distances"]

    def rows(self, part: LayerAttention, layer: int, heads: Heads) -> Tensor:
        scores = self.scores[layer].to(part.value.device)
        found = scores[indices(heads, scores.device)][:, distances(part, scores.shape[-1] // 2)]
        return (found - found.amax(dim=-1, keepdim=True)).exp().transpose(0, 1)


class MeanQueriesAndKeys:
    """Means of queries and keys over all real tokens, before their rotation."""

    def __init__(self, model: Any, modules: Sequence[nn.Module]) -> None:
        modelling = sys.modules[type(modules[0]).__module__]
        self._rotate: Any = getattr(modelling, "apply_rotary_pos_emb", None)
        self._rotary: Any = getattr(model.base_model, "rotary_emb", None)
        if self._rotate is None or self._rotary is None:
            raise EncoderError(no_rotation(type(modules[0]).__name__))
        by_kind = "layer_type" in inspect.signature(self._rotary.forward).parameters
        self._kinds = [(kind,) for kind in model.config.layer_types] if by_kind else None
        self._seen: dict[int, Any] = {}
        """Of each layer: sums [2, heads, width], tokens, the longest text, scaling and softcap."""

    def _rotation(
        self, layer: int, positions: Int[Tensor, "#batch tokens"], like: Tensor
    ) -> tuple[Float[Tensor, "#batch tokens width"], Float[Tensor, "#batch tokens width"]]:
        found = self._rotary(like, positions, *(self._kinds[layer] if self._kinds else ()))
        if found[0].shape[-1] != like.shape[-1]:
            raise EncoderError(no_rotation("the model"))
        return found

    def see(self, attention: LayerAttention, layer: int) -> Tensor:
        queries, positions = attention.query.shape[-2], attention.position_ids
        if positions is None:
            by_index = torch.arange(queries, device=attention.query.device)[None]
            positions = by_index if attention.batch is None else attention.query_slots
        query, key = at_least_single(attention.query), at_least_single(attention.key)
        cos, sin = self._rotation(layer, positions, query)
        squares, real = cos.square() + sin.square(), attention.real
        own = query, key[:, :, attention.first : attention.first + queries]
        turned_back = torch.stack(self._rotate(*own, cos / squares, -sin / squares))
        sums = (turned_back.double() * real[:, None, :, None]).sum(dim=(1, 3))
        before, tokens, longest, *_ = self._seen.get(layer, (0.0, 0, 0))
        counted = before + sums, tokens + real.sum(), max(attention.longest, longest)
        self._seen[layer] = *counted, attention.scaling, attention.softcap
        return attention.output(attention.every)

    def substitute(self, slots: int = 0) -> ByMeanScores:
        """Scores at each distance in so many slots, or the longest text's, farthest ahead first."""
        found = list[Tensor]()
        for layer, (sums, tokens, longest, scaling, cap) in sorted(self._seen.items()):
            means = (sums / tokens).float()
            everywhere = torch.arange(slots or longest, device=means.device)[None]
            cos, sin = self._rotation(layer, everywhere, means)
            expanded = means[:, None, :, None].expand(-1, 1, -1, everywhere.shape[1], -1)
            query, key = (turned[0] for turned in self._rotate(*expanded, cos, sin))
            ahead, behind = (query[:, :1] * key).sum(dim=-1), (query * key[:, :1]).sum(dim=-1)
            scores = torch.cat([ahead.flip(-1), behind[:, 1:]], dim=-1) * scaling
            found.append(scores if cap is None else torch.tanh(scores / cap) * cap)
        return ByMeanScores(torch.stack(found))


@torch.inference_mode()
def mean_qk(encoder: Encoder, batches: Iterable[MicroBatch], slots: int) -> ConstantMatrices:
    """softmax(RoPE(q̄) · RoPE(k̄)), of the means over all tokens before their rotation, of an
    encoder with rotary positions; 0 where a layer does not look.
    """
    modules, matrices = encoder.dispatch.modules, list[Tensor]()
    means = MeanQueriesAndKeys(encoder.model, modules)
    encoder.watch(means.see, batches)
    apart = torch.arange(slots)[:, None] - torch.arange(slots)
    for module, scores in zip(modules, means.substitute(slots).scores.cpu(), strict=True):
        found = scores[:, apart + slots - 1]
        if (window := getattr(module, "sliding_window", None)) is not None:
            found = found.masked_fill(apart.abs() >= window, -torch.inf)
        matrices.append(found.softmax(dim=-1))
    seen = torch.ones(slots, slots, dtype=torch.bool)
    return ConstantMatrices(torch.stack(matrices), seen, "mean_qk")


def no_rotation(what: str) -> str:
    """What a person reads of a model without rotary positions."""
    return (
        f"'mean_qk' needs rotary positions of whole heads, and {what} has none, so that the mean "
        "query and the mean key have one score at every distance: take 'relative'"
    )
