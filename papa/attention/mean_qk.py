"""Attention made of two vectors a head: its mean query and its mean key, at every distance.

With rotary positions the score of a query and a key depends on their distance alone once both are
means (the score behind DuoAttention's heads in kvpress). Without them it is the same everywhere.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices
from papa.attention.substitutes import Weights
from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import Heads, LayerAttention, at_least_single, indices
from papa.encoders.encoder import Encoder
from papa.errors import EncoderError


@dataclass(frozen=True)
class ByMeanScores(Weights):
    """softmax over the tokens that a token may see, of scores by distance.

    s[layer, head, d] is of a token and the one ``d`` before it; the middle entry is d = 0. A
    distance beyond the first or the last entry has that entry's.
    """

    scores: Float[Tensor, "layers heads distances"]

    def rows(self, part: LayerAttention, layer: int, heads: Heads) -> Tensor:
        scores, reach = self.scores[layer].to(part.value.device), self.scores.shape[-1] // 2
        apart = part.query_slots[:, :, None] - part.key_slots[:, None, :]
        found = scores[indices(heads, scores.device)][:, apart.clamp(-reach, reach) + reach]
        return (found - found.amax(dim=-1, keepdim=True)).exp().transpose(0, 1)


class _Told(NamedTuple):
    """What the scores of a layer need beside its means, and how long the longest text was."""

    longest: int
    scaling: float
    softcap: float | None
    window: int | None


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
        self._sums: dict[int, Float[Tensor, "2 heads width"]] = {}
        self._tokens: dict[int, Int[Tensor, ""]] = {}
        self._told: dict[int, _Told] = {}

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
        own = slice(attention.first, attention.first + queries)
        squares, real = cos.square() + sin.square(), attention.real_queries
        turned_back = torch.stack(
            self._rotate(query, key[:, :, own], cos / squares, -sin / squares)
        )
        sums = (turned_back.double() * real[:, None, :, None]).sum(dim=(1, 3))
        self._sums[layer] = self._sums.get(layer, 0.0) + sums
        self._tokens[layer] = self._tokens.get(layer, 0) + real.sum()
        longest = max(attention.longest, self._told[layer].longest if layer in self._told else 0)
        told = longest, attention.scaling, attention.softcap, attention.window
        self._told[layer] = _Told(*told)
        return attention.output(attention.every)

    def substitute(self, slots: int = 0) -> ByMeanScores:
        """Scores at every distance that so many slots have, or the longest text, farthest ahead
        first.
        """
        found = list[Tensor]()
        for layer, sums in sorted(self._sums.items()):
            told = self._told[layer]
            means = (sums / self._tokens[layer]).float()
            everywhere = torch.arange(slots or told.longest, device=means.device)[None]
            cos, sin = self._rotation(layer, everywhere, means)
            expanded = means[:, None, :, None].expand(-1, 1, -1, everywhere.shape[1], -1)
            query, key = (turned[0] for turned in self._rotate(*expanded, cos, sin))
            ahead, behind = (query[:, :1] * key).sum(dim=-1), (query * key[:, :1]).sum(dim=-1)
            scores = torch.cat([ahead.flip(-1), behind[:, 1:]], dim=-1) * told.scaling
            cap = told.softcap
            found.append(scores if cap is None else torch.tanh(scores / cap) * cap)
        return ByMeanScores(torch.stack(found))

    @property
    def windows(self) -> list[int | None]:
        """One more than how far each layer looks; None where it looks at all."""
        return [told.window for _, told in sorted(self._told.items())]


@torch.inference_mode()
def mean_qk(encoder: Encoder, batches: Iterable[MicroBatch], slots: int) -> ConstantMatrices:
    """softmax(RoPE(q̄) · RoPE(k̄)), of the means over all tokens before their rotation, of an
    encoder with rotary positions; 0 where a layer does not look.
    """
    means, matrices = MeanQueriesAndKeys(encoder.model, encoder.dispatch.modules), list[Tensor]()
    with encoder.watched(means.see):
        for batch in batches:
            encoder.observe(batch)
    places = torch.arange(slots)
    apart = places[:, None] - places
    for scores, window in zip(means.substitute(slots).scores.cpu(), means.windows, strict=True):
        found = scores[:, apart + slots - 1]
        if window is not None:
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
