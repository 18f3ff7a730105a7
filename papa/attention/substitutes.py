"""What heads put out in place of their own attention, and the rules by which they do.

A substitute is a frozen dataclass with one method, for packed inputs and padded ones alike. One
that needs text is made by an observer, which sees every layer of some passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from papa.encoders.layer import (
    Heads,
    LayerAttention,
    Rule,
    at_least_single,
    chosen,
    dropped,
    indices,
)
from papa.errors import DataError, SpecError

One = TypeVar("One", bound="Substitute")


@dataclass(frozen=True)
class Substitute:
    """What some heads of a layer put out instead of A·V.

    ``reads_attention`` says whether it needs their queries and keys all the same.
    """

    reads_attention: ClassVar[bool] = False

    def output(
        self, attention: LayerAttention, layer: int, heads: Heads
    ) -> Float[Tensor, "batch chosen queries width"]:
        raise NotImplementedError

    def to(self: One, device: torch.device | str) -> One:
        """Itself, its tensors on a device."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {n: v.to(device) for n, v in held.items() if isinstance(v, Tensor | Substitute)}
        return replace(self, **moved) if moved else self


@runtime_checkable
class Observer(Protocol):
    """What sees every layer of some passes, gives what its heads put out, and makes a substitute
    of what it saw.
    """

    def see(self, attention: LayerAttention, layer: int) -> Tensor: ...

    def substitute(self) -> Substitute: ...


@dataclass(frozen=True)
class Zeros(Substitute):
    """Nothing: a pruned head (Michel et al., 2019)."""

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        value, queries = attention.value, attention.query.shape[-2]
        return value.new_zeros(len(value), len(heads), queries, value.shape[-1])


@dataclass(frozen=True)
class Weights(Substitute):
    """Mixing by rows of weights, one method of which differs; rows are restricted to the keys that
    are visible and divided by their sums, and a row of zeros puts out zeros.
    """

    def rows(
        self, part: LayerAttention, layer: int, heads: Heads
    ) -> Float[Tensor, "#batch chosen queries keys"]:
        """Weights of each pair of tokens."""
        raise NotImplementedError

    def matrices_of(
        self, part: LayerAttention, layer: int, heads: Heads
    ) -> Float[Tensor, "batch chosen queries keys"]:
        """What takes the place of A, written out."""
        rows = self.rows(part, layer, heads)
        rows = rows.to(torch.promote_types(part.value.dtype, torch.float32))
        if part.visible is not None:
            rows = rows * chosen(part.visible, heads)
        return normalised(rows).expand(len(part.value), -1, -1, -1)

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        value, found = at_least_single(chosen(attention.value, heads)), list[Tensor]()
        for part in attention.parts():
            rows = dropped(self.matrices_of(part, layer, heads), attention.dropout)
            found.append(rows @ value)
        return torch.cat(found, dim=2)


@dataclass(frozen=True)
class Streaming(Weights):
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
    reads_attention: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.recent < 1:
            raise SpecError(
                f"sinks is {self.sinks} and recent is {self.recent}, expected 0 or more and 1 or "
                "more: a token always sees itself"
            )

    def rows(self, part: LayerAttention, layer: int, heads: Heads) -> Tensor:
        keys = part.key_slots[:, None, :]
        near = (part.query_slots[:, :, None] - keys).abs() < self.recent
        seen = (near | (keys < self.sinks))[:, None]
        mask = seen if part.mask is None else seen & part.mask
        return replace(part, mask=mask).probabilities(heads)


MatrixFunction = Callable[[int, int, int], Float[Tensor, "slots slots"]]
"""A user's own constant: from (layer, head, slots) to C."""


@dataclass(frozen=True)
class OfFunction(Weights):
    """A user's own matrices, made for as many slots as a text has."""

    function: MatrixFunction

    def rows(self, part: LayerAttention, layer: int, heads: Heads) -> Tensor:
        slots, own = part.longest, list[Tensor]()
        for head in heads:
            matrix = self.function(layer, head, slots)
            shape = tuple(matrix.shape) if isinstance(matrix, Tensor | np.ndarray) else None
            if shape != (slots, slots):
                what = f"a matrix of {shape}" if shape else f"a {type(matrix).__name__}"
                raise DataError(
                    f"the function gave head ({layer}, {head}) {what}, expected ({slots}, {slots}) "
                    "numbers: a row and a column for each slot"
                )
            own.append(torch.as_tensor(matrix).to(part.value.device))
        return read_at(torch.stack(own), part)


def normalised(rows: Float[Tensor, "*any keys"]) -> Float[Tensor, "*any keys"]:
    """Rows divided by their sums; a row of zeros stays."""
    sums = rows.abs().sum(dim=-1, keepdim=True)
    return rows / torch.where(sums == 0, 1.0, sums)


def read_at(
    matrices: Float[Tensor, "chosen slots slots"], part: LayerAttention
) -> Float[Tensor, "#batch chosen queries keys"]:
    """Matrices at the slots of each pair of tokens."""
    pairs = part.query_slots[:, :, None] * matrices.shape[-1] + part.key_slots[:, None, :]
    found = matrices.flatten(1).index_select(1, pairs.flatten())
    return found.unflatten(1, pairs.shape).transpose(0, 1)


@dataclass(frozen=True)
class Mixed(Substitute):
    """λA + (1-λ)C (Hassid et al., 2022, Section 3.2).

    With ``Streaming`` in C's place it is DuoAttention's forward pass in two ways (Xiao et al.,
    2025, Section 3.2).

    Attributes:
        substitute: C.
        shares: λ of every head, or of each in each text; gradients may be asked of it.
    """

    substitute: Substitute
    shares: Float[Tensor, "layers *batch heads"]
    reads_attention: ClassVar[bool] = True

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        share = self.shares[layer]
        share = share[..., indices(heads, share.device), None, None].to(attention.value.device)
        if attention.dropout > 0 and isinstance(self.substitute, Weights):
            # Entries of the mix itself are dropped, so here it is written out.
            constant = self.substitute.matrices_of(attention, layer, heads)
            mix = constant + share * (attention.probabilities(heads) - constant)
            return dropped(mix, attention.dropout) @ chosen(attention.value, heads).to(mix.dtype)
        # The mix is linear in V, so only what A and C put out is ever added.
        constant = at_least_single(self.substitute.output(attention, layer, heads))
        return constant + share.to(constant.dtype) * (attention.output(heads) - constant)


@dataclass(frozen=True)
class Replacing(Rule):
    """The rule of one layer some of whose heads put out a substitute."""

    substitute: Substitute
    layer: int
    heads: Heads

    def constant(self, outer: frozenset[int]) -> frozenset[int]:
        if self.substitute.reads_attention:
            return outer.difference(self.heads)
        return outer.union(self.heads)

    def put_out(self, attention: LayerAttention, heads: Heads) -> Tensor:
        own = tuple(head for head in heads if head in self.heads)
        if own == heads:
            return self.substitute.output(attention, self.layer, heads)
        kept = tuple(head for head in heads if head not in own)
        parts = {kept: attention.output(kept)}
        if own:
            parts[own] = self.substitute.output(attention, self.layer, own)
        return together(heads, parts, attention)


def together(
    heads: Heads, parts: Mapping[Heads, Tensor], attention: LayerAttention
) -> Float[Tensor, "batch chosen queries width"]:
    """What some heads put out, of which each part has some."""
    first = next(iter(parts.values()))
    dtype = torch.promote_types(attention.value.dtype, torch.float32)
    found = first.new_empty(len(first), len(heads), *first.shape[2:], dtype=dtype)
    for own, output in parts.items():
        at = tuple(map(heads.index, own))
        found[:, indices(at, found.device)] = output.to(dtype)
    return found


@dataclass(frozen=True)
class Reused(Substitute):
    """A of the same head of the layer before, or what that one reuses itself (after Reuse
    Transformer, Bhojanapalli et al., 2021). Heads of the first layer keep their own.

    Not constant: its rules need every layer (``rules_of``).
    """

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        raise SpecError("reused heads put out no constant to mix with: take another substitute")


@dataclass(frozen=True)
class _Reusing(Rule):
    """``before`` is what each head mixes by, which every layer writes for the next."""

    heads: Heads
    before: dict[int, LayerAttention]

    def constant(self, outer: frozenset[int]) -> frozenset[int]:
        return frozenset(self.heads)

    def put_out(self, attention: LayerAttention, heads: Heads) -> Tensor:
        kept = tuple(head for head in attention.every if head not in self.heads)
        self.before.update(dict.fromkeys(kept, replace(attention, rules=())))
        asked = tuple(head for head in heads if head in kept)
        parts = {asked: attention.output(asked)} if asked else {}
        for head in set(heads).difference(kept):
            if self.before[head].key.shape[-2] != attention.key.shape[-2]:
                raise DataError(
                    "a layer's cache holds other tokens than that of the layer before, whose "
                    "attention its heads reuse: call the model with use_cache=False"
                )
            parts[head,] = self.before[head].times(chosen(attention.value, (head,)), (head,))
        return together(heads, parts, attention)


def rules_of(
    substitute: Substitute, heads: Mapping[int, Sequence[int]], layers: int
) -> dict[int, Rule]:
    """The rules of the layers of a model whose heads, by layer, put out a substitute."""
    own = {layer: tuple(sorted(of_layer)) for layer, of_layer in heads.items()}
    if isinstance(substitute, Reused):
        before: dict[int, LayerAttention] = {}
        return {at: _Reusing(own.get(at, ()) if at else (), before) for at in range(layers)}
    return {layer: Replacing(substitute, layer, of_layer) for layer, of_layer in own.items()}


def by_layer(pairs: Sequence[Any]) -> dict[int, list[int]]:
    """Heads as (layer, head), by layer."""
    found: dict[int, list[int]] = {}
    for layer, head in sorted(pairs):
        found.setdefault(layer, []).append(head)
    return found
