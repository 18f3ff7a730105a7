"""What a head puts out in place of its own attention: from nothing to a constant of the text's
positions.

A substitute is a frozen dataclass with one method. One that needs text is made by an observer,
which sees every layer of some passes (``papa.ablation.observers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from papa.ablation.interface import LayerAttention, LayerRule
from papa.attention.constants import DistanceWeights, places
from papa.attention.outputs import ConstantOutputs
from papa.errors import DataError, SpecError


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
        return torch.zeros_like(attention.value[:, heads, :1]).expand(
            -1, -1, attention.query.shape[-2], -1
        )


@dataclass(frozen=True)
class ByPosition:
    """A constant matrix for each head, C[layer, head, i, j], read at the positions of a text
    (Hassid et al., 2022, Section 3.1).

    Rows are restricted to the keys that the model's own mask allows and divided by their sums; a
    row of zeros puts out zeros.
    """

    matrices: Float[Tensor, "layers heads slots slots"]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        longest, slots = int(attention.key_slots.max()) + 1, self.matrices.shape[-1]
        if longest > slots:
            raise DataError(
                f"a text has {longest} tokens and the constant matrices have {slots} slots: "
                'cut it, or take matrices for more slots or by="relative", which has no limit'
            )
        return mixed(self.matrices[layer].to(attention.value.device)[heads], attention, heads)


class ByDistance(DistanceWeights):
    """What a token takes from another by the distance between them, and from a text's ends wherever
    it stands.
    """

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        held, last = self.to(attention.value.device), last_tokens(attention)
        table = held.table(layer, heads)

        def rows(part: LayerAttention) -> Tensor:
            return table[:, places_of(part, last, held.reach)].transpose(0, 1)

        return weighted(rows, attention, heads)


@dataclass(frozen=True)
class Streaming:
    """A restricted to the first tokens and the last (StreamingLLM, Xiao et al., 2024; DuoAttention,
    Xiao et al., 2025).

    Not constant: its queries and keys are still computed. It is for comparison, and needs no text.

    Examples:
        >>> import papa, torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> with papa.ablated(model, [(0, 1)], by={"kind": "streaming", "recent": 2}):
        ...     logits = model(input_ids=torch.tensor([[3, 5, 7, 5]])).logits

    Attributes:
        sinks: first tokens that every token sees.
        recent: tokens before it that it sees, itself among them; in an encoder those after it,
            likewise.
    """

    sinks: int = 4
    recent: int = 64

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.recent < 1:
            raise SpecError(
                f"sinks is {self.sinks} and recent is {self.recent}, expected 0 or more and 1 or "
                "more: a token always sees itself"
            )

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        def rows(part: LayerAttention) -> Tensor:
            keys = part.key_slots[:, None, :]
            near = (part.query_slots[:, :, None] - keys).abs() < self.recent
            return part.probabilities(heads, seen=(near | (keys < self.sinks))[:, None])

        return weighted(rows, attention, heads)


@dataclass(frozen=True)
class MeanOutput:
    """The mean of what the head put out over text: a constant output, not a constant mixing."""

    means: Mapping[int, Float[Tensor, "heads width"]]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        means = self.means[layer].to(attention.value)[heads]
        batch, queries = attention.query.shape[0], attention.query.shape[-2]
        return means[None, :, None].expand(batch, -1, queries, -1)


class Donor(NamedTuple):
    """What heads put out in a text, and what tells it from others."""

    text: bytes | None
    outputs: Float[Tensor, "heads tokens width"]


@dataclass(frozen=True)
class Resampled:
    """What the head put out at the same position of another text (causal scrubbing): of the donors
    of a layer the shortest that is long enough, else the longest.
    """

    donors: Mapping[int, Sequence[Donor]]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        found, batch = [], attention.query.shape[0]
        slots, texts = attention.query_slots.expand(batch, -1), attention.texts or [None] * batch
        for row, real, text in zip(slots, attention.real_queries, texts, strict=True):
            length = int(row[real].max()) + 1
            others = [one.outputs for one in self.donors[layer] if text is None or one.text != text]
            if not others:
                raise DataError(
                    "there is no other text to resample from: give more texts in data, or another "
                    "substitute"
                )
            sizes = [own.shape[1] for own in others]
            fitting = [number for number, size in enumerate(sizes) if size >= length]
            donor = others[min(fitting or [sizes.index(max(sizes))], key=sizes.__getitem__)]
            found.append(donor.to(attention.value)[heads][:, row.clamp(max=donor.shape[1] - 1)])
        return torch.stack(found)


@dataclass(frozen=True)
class OutputsBySlot:
    """What the packed path puts out in place of A·V."""

    constants: ConstantOutputs

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        lengths = attention.real_queries.sum(dim=1)
        found = self.constants.at(layer, heads, lengths, attention.query_slots)
        return found.to(attention.value.dtype)


def last_tokens(attention: LayerAttention) -> Int[Tensor, "#batch 1 1"]:
    """The position of each text's last token where it is apart, else of none."""
    if attention.causal:
        return attention.key_slots.new_full((1, 1, 1), -1)
    return (attention.query_slots * attention.real_queries).amax(dim=1)[:, None, None]


def places_of(
    part: LayerAttention, last: Int[Tensor, "#batch 1 1"], reach: int
) -> Int[Tensor, "#batch queries keys"]:
    """Where among the ends and the distances a pair of tokens finds its weight."""
    return places(part.query_slots[:, :, None], part.key_slots[:, None, :], last, reach)


def mixed(
    matrices: Float[Tensor, "chosen slots slots"],
    attention: LayerAttention,
    heads: Int[Tensor, " chosen"],
) -> Float[Tensor, "batch chosen queries width"]:
    """Constant matrices, read at the positions of a text."""

    def rows(part: LayerAttention) -> Tensor:
        return matrices[:, part.query_slots[:, :, None], part.key_slots[:, None, :]].transpose(0, 1)

    return weighted(rows, attention, heads)


def weighted(
    rows: Callable[[LayerAttention], Float[Tensor, "#batch chosen queries keys"]],
    attention: LayerAttention,
    heads: Int[Tensor, " chosen"],
) -> Float[Tensor, "batch chosen queries width"]:
    """Rows of each part of a call, masked as the model masks, divided by their sums, times V."""
    value, found = attention.value[:, heads], []
    for part in attention.parts():
        allowed = part.allowed if part.allowed.shape[1] == 1 else part.allowed[:, heads]
        some = rows(part).to(torch.promote_types(value.dtype, torch.float32)) * allowed
        sums = some.abs().sum(dim=-1, keepdim=True)
        found.append(torch.matmul(some / torch.where(sums == 0, 1.0, sums), value.to(some.dtype)))
    return torch.cat(found, dim=2).to(value.dtype)


def heads_replaced(
    attention: LayerAttention, *, layer: int, heads: Int[Tensor, " chosen"], substitute: Substitute
) -> Float[Tensor, "batch heads queries width"]:
    """The rule of a layer some of whose heads put out a substitute."""
    heads = heads.to(attention.value.device)
    kept = torch.tensor(
        [head for head in attention.every_head().tolist() if head not in set(heads.tolist())]
    )
    shape = (*attention.query.shape[:3], attention.value.shape[-1])
    output = attention.value.new_empty(shape)
    output[:, heads] = substitute.output(attention, layer, heads)
    if len(kept):
        kept = kept.to(heads.device)
        output[:, kept] = attention.output(kept)
    return output


@dataclass(frozen=True)
class Reused:
    """A of the same head of the layer before, or what that one reuses itself (after Reuse
    Transformer, Bhojanapalli et al., 2021). Heads of the first layer keep their own.

    Not constant: its rules need every layer (``rules_of``).
    """

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        raise SpecError("reused heads put out no constant to mix with: take another substitute")


def _heads_reusing(
    attention: LayerAttention, *, heads: Sequence[int], before: dict[int, LayerAttention]
) -> Float[Tensor, "batch heads queries width"]:
    """The rule of a layer some of whose heads reuse; ``before`` is what each head mixes by."""
    every = attention.every_head()
    kept = torch.tensor([head for head in every.tolist() if head not in heads]).to(every)
    output = attention.value.new_empty(*attention.query.shape[:3], attention.value.shape[-1])
    if len(kept):
        before.update(dict.fromkeys(kept.tolist(), replace(attention, outer=None)))
        output[:, kept] = attention.output(kept)
    for head in heads:
        if before[head].key.shape[-2] != attention.key.shape[-2]:
            raise DataError(
                "a layer's cache holds other tokens than that of the layer before, whose attention "
                "its heads reuse: call the model with use_cache=False"
            )
        one = slice(head, head + 1)
        output[:, one] = before[head].times(attention.value[:, one], every[one])
    return output


def rules_of(
    substitute: Substitute, heads: Mapping[int, Sequence[int]], layers: int
) -> dict[int, LayerRule]:
    """The rules of the layers of a model whose heads, by layer, put out a substitute."""
    if not isinstance(substitute, Reused):
        return {
            layer: partial(
                heads_replaced, layer=layer, heads=torch.tensor(own), substitute=substitute
            )
            for layer, own in heads.items()
        }
    before: dict[int, LayerAttention] = {}
    return {
        layer: partial(_heads_reusing, heads=heads.get(layer, ()) if layer else (), before=before)
        for layer in range(layers)
    }


MatrixFunction = Callable[[int, int, int], Float[Tensor, "slots slots"]]
"""A user's own constant: from (layer, head, slots) to C."""


@dataclass(frozen=True)
class OfFunction:
    """A user's own matrices, made for as many slots as a text has."""

    function: MatrixFunction

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        slots = int(attention.key_slots.max()) + 1
        own = []
        for head in heads.tolist():
            matrix = self.function(layer, head, slots)
            shape = tuple(matrix.shape) if isinstance(matrix, Tensor | np.ndarray) else None
            if shape != (slots, slots):
                what = f"a matrix of {shape}" if shape else f"a {type(matrix).__name__}"
                raise DataError(
                    f"the function gave head ({layer}, {head}) {what}, expected ({slots}, {slots}) "
                    "numbers: a row and a column for each slot"
                )
            own.append(torch.as_tensor(matrix))
        return mixed(torch.stack(own).to(attention.value.device), attention, heads)


@dataclass(frozen=True)
class Mixed:
    """λA + (1-λ)C (Hassid et al., 2022, Section 3.2).

    With ``Streaming`` in C's place it is DuoAttention's forward pass in two ways (Xiao et al.,
    2025, Section 3.2).

    Attributes:
        substitute: C.
        shares: λ of every head, or of each in each text; gradients may be asked of it.
    """

    substitute: Substitute
    shares: Float[Tensor, "layers *batch heads"]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        constant = self.substitute.output(attention, layer, heads)
        share = self.shares[layer].to(constant)[..., heads, None, None]
        return constant + share * (attention.output(heads) - constant)
