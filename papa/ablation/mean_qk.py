"""A constant from two vectors a head: its mean query and its mean key, at every distance.

Of models with rotary positions, in the user's own loop (the score behind DuoAttention's heads in
kvpress); ``papa.attention.mean_qk`` is the same of the encoders that papa loads.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.ablation.interface import LayerAttention
from papa.ablation.substitutes import weighted
from papa.errors import EncoderError

Rotation = tuple[Float[Tensor, "#batch tokens width"], Float[Tensor, "#batch tokens width"]]
"""Cosine and sine of each token's position, as a model hands them to its attention."""


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
