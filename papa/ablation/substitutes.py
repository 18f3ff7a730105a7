"""What a head puts out in place of its own attention: from nothing to a constant of the text's positions.

A substitute is a frozen dataclass with one method. One that needs text is made by an observer, which sees every layer
of some passes (``papa.ablation.observers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from papa.ablation.interface import LayerAttention
from papa.errors import DataError


@runtime_checkable
class Substitute(Protocol):
    """What some heads of a layer put out instead of A·V."""

    def output(
        self, attention: LayerAttention, layer: int, heads: Int[Tensor, " chosen"]
    ) -> Float[Tensor, "batch chosen queries width"]: ...


@dataclass(frozen=True)
class Zeros:
    """Nothing: a pruned head (Michel et al., 2019)."""

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        return torch.zeros_like(attention.value[:, heads, :1]).expand(-1, -1, attention.query.shape[-2], -1)


@dataclass(frozen=True)
class ByPosition:
    """A constant matrix for each head, read at the positions of a text (Hassid et al., 2022, Section 3.1).

    Rows are restricted to the keys that the model's own mask allows and divided by their sums; a row of zeros puts out
    zeros.

    Attributes:
        matrices: C[layer, head, i, j].
    """

    matrices: Float[Tensor, "layers heads slots slots"]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        longest, slots = int(attention.key_slots.max()) + 1, self.matrices.shape[-1]
        if longest > slots:
            raise DataError(
                f"a text has {longest} tokens and the constant matrices have {slots} slots: cut the text, or take "
                'matrices for more slots or by="relative", which has no limit'
            )
        own = self.matrices[layer].to(attention.value.device)[heads]
        queries, keys = attention.query_slots, attention.key_slots
        return mixed(own[:, queries[:, :, None], keys[:, None, :]].transpose(0, 1), attention, heads)


@dataclass(frozen=True)
class ByDistance:
    """A constant for each distance between two tokens, with columns of its own for the first tokens; for any length.

    Attributes:
        weights: r[layer, head, d], what a token takes from the one ``d`` before it; the middle entry is d = 0, the
            first and the last hold for everything beyond.
        first: weights of the first tokens, as far as they are kept apart.
    """

    weights: Float[Tensor, "layers heads distances"]
    first: Float[Tensor, "layers heads first"]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        device = attention.value.device
        weights, first = self.weights[layer].to(device)[heads], self.first[layer].to(device)[heads]
        queries, keys = attention.query_slots[:, :, None], attention.key_slots[:, None, :]
        reach = weights.shape[-1] // 2
        matrices = weights[:, (queries - keys).clamp(-reach, reach) + reach]
        if count := first.shape[-1]:
            apart = first[:, keys.clamp(max=count - 1)].expand_as(matrices)
            matrices = torch.where(keys < count, apart, matrices)
        return mixed(matrices.transpose(0, 1), attention, heads)


@dataclass(frozen=True)
class MeanOutput:
    """The mean of what the head put out over text: a constant output, not a constant mixing.

    Attributes:
        means: of each head, over all tokens.
    """

    means: Mapping[int, Float[Tensor, "heads width"]]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        means = self.means[layer].to(attention.value)[heads]
        batch, queries = attention.query.shape[0], attention.query.shape[-2]
        return means[None, :, None].expand(batch, -1, queries, -1)


@dataclass(frozen=True)
class Resampled:
    """What the head put out at the same position of another text, drawn once for each length (causal scrubbing).

    Attributes:
        donors: by layer, what heads put out in the drawn text of each length.
    """

    donors: Mapping[int, Mapping[int, Float[Tensor, "heads tokens width"]]]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        donors, found = self.donors[layer], []
        slots = attention.query_slots.expand(attention.query.shape[0], -1)
        for row, real in zip(slots, attention.real_queries, strict=True):
            length = int(row[real].max()) + 1
            donor = donors[min((size for size in donors if size >= length), default=max(donors))]
            found.append(donor.to(attention.value)[heads][:, row.clamp(max=donor.shape[1] - 1)])
        return torch.stack(found)


def mixed(
    matrices: Float[Tensor, "#batch chosen queries keys"], attention: LayerAttention, heads: Int[Tensor, " chosen"]
) -> Float[Tensor, "batch chosen queries width"]:
    """Constant rows on what the model's mask allows, divided by their sums, times V."""
    value = attention.value[:, heads]
    allowed = attention.allowed if attention.allowed.shape[1] == 1 else attention.allowed[:, heads]
    rows = matrices.to(torch.promote_types(value.dtype, torch.float32)) * allowed
    sums = rows.abs().sum(dim=-1, keepdim=True)
    return torch.matmul(rows / torch.where(sums == 0, 1.0, sums), value.to(rows.dtype)).to(value.dtype)


MatrixFunction = Callable[[int, int, int], Float[Tensor, "slots slots"]]
"""A user's own constant: from (layer, head, slots) to C."""


@dataclass(frozen=True)
class OfFunction:
    """A user's own matrices, made for as many slots as a text has."""

    function: MatrixFunction

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        slots = int(attention.key_slots.max()) + 1
        own = [torch.as_tensor(self.function(layer, head, slots)) for head in heads.tolist()]
        for head, matrix in zip(heads.tolist(), own, strict=True):
            if matrix.shape != (slots, slots):
                raise DataError(
                    f"the function gave head ({layer}, {head}) a matrix of {tuple(matrix.shape)}, expected "
                    f"({slots}, {slots}): a row and a column for each slot"
                )
        matrices = torch.stack(own).to(attention.value.device)
        queries, keys = attention.query_slots, attention.key_slots
        return mixed(matrices[:, queries[:, :, None], keys[:, None, :]].transpose(0, 1), attention, heads)
