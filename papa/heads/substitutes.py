"""What heads output in place of their own attention, and the rules by which they do.

A substitute has one method, for packed and padded inputs. One that needs text is made by an
observer (``papa.heads.observers``).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from papa.errors import DataError
from papa.models.layer import Heads, LayerAttention, Rule, at_least_single, indices, states_of_heads

SomeSubstitute = TypeVar("SomeSubstitute", bound="Substitute")


@dataclass(frozen=True)
class Substitute:
    """What heads output instead of A·V; ``reads_attention`` where it needs queries and keys,
    ``mixes`` where it is a matrix times values.
    """

    reads_attention: ClassVar[bool] = False
    mixes: ClassVar[bool] = False

    def output(
        self, attention: LayerAttention, layer: int, heads: Heads
    ) -> Float[Tensor, "batch chosen queries width"]:
        raise NotImplementedError

    def to(self: SomeSubstitute, device: torch.device | str) -> SomeSubstitute:
        """Return a copy whose tensors are on a device."""
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor | Substitute):
                moved[field.name] = value.to(device)
        return replace(self, **moved) if moved else self


@dataclass(frozen=True)
class Zeros(Substitute):
    """Nothing: a pruned head (Michel et al., 2019)."""

    mixes: ClassVar[bool] = True

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        value = attention.value
        queries = attention.query.shape[-2]
        return value.new_zeros(len(value), len(heads), queries, value.shape[-1])


@dataclass(frozen=True)
class Weights(Substitute):
    """Mixing by rows of weights, restricted to visible keys and divided by their sums."""

    mixes: ClassVar[bool] = True

    def rows(
        self, chunk: LayerAttention, layer: int, heads: Heads
    ) -> Float[Tensor, "#batch chosen queries keys"]:
        """Return the weights of each pair of tokens."""
        raise NotImplementedError

    def sink_weights(self, layer: int, heads: Heads) -> Float[Tensor, " chosen"] | None:
        """Return the weights of a learned sink, beside those of tokens; None where rows leave them
        out.
        """
        return None

    def matrices_of(
        self, chunk: LayerAttention, layer: int, heads: Heads
    ) -> Float[Tensor, "batch chosen queries keys"]:
        """Return what takes the place of A, written out."""
        rows = self.rows(chunk, layer, heads)
        rows = rows.to(torch.promote_types(chunk.value.dtype, torch.float32))
        if chunk.visible is not None:
            rows = rows * states_of_heads(chunk.visible, heads)
        if chunk.sinks is not None:
            rows = beside_sink(rows, self.sink_weights(layer, heads))
        else:
            rows = normalised(rows)
        return rows.expand(len(chunk.value), -1, -1, -1)

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        value = at_least_single(states_of_heads(attention.value, heads))
        outputs: list[Tensor] = []
        for chunk in attention.chunks():
            rows = F.dropout(self.matrices_of(chunk, layer, heads), attention.dropout)
            outputs.append(rows @ value)
        return torch.cat(outputs, dim=2)


@dataclass(frozen=True)
class Streaming(Weights):
    """A restricted to the first tokens, ``sinks``, and the last, ``recent``, itself among them, on
    both sides in an encoder (StreamingLLM, Xiao et al., 2024; DuoAttention, Xiao et al., 2025). Not
    constant: queries and keys are still computed.
    """

    sinks: int = 4
    recent: int = 64
    reads_attention: ClassVar[bool] = True

    def rows(self, chunk: LayerAttention, layer: int, heads: Heads) -> Tensor:
        keys = chunk.slots.keys[:, None, :]
        near = (chunk.slots.queries[:, :, None] - keys).abs() < self.recent
        visible = (near | (keys < self.sinks))[:, None]
        mask = visible if chunk.mask is None else visible & chunk.mask
        return replace(chunk, mask=mask).probabilities(heads)


@dataclass(frozen=True)
class FunctionMatrices(Weights):
    """Custom matrices, computed for as many slots as each text has up to its last token."""

    function: Callable[[int, int, int], Float[Tensor, "slots slots"]]

    def rows(self, chunk: LayerAttention, layer: int, heads: Heads) -> Tensor:
        device = chunk.value.device
        rows: list[Tensor] = []
        lengths, group = chunk.slots.lengths.unique(return_inverse=True)
        for number, slots in enumerate(lengths.tolist()):
            of_heads = torch.stack([self.matrix(layer, head, slots) for head in heads]).to(device)
            # What lies beyond a text is padding, which nobody reads.
            query_slots, key_slots = (
                token_slots.clamp(max=slots - 1).expand(len(group), -1)[group == number]
                for token_slots in (chunk.slots.queries, chunk.slots.keys)
            )
            all_heads = torch.arange(len(heads), device=device)
            rows.append(read_at(of_heads, all_heads, query_slots, key_slots))
        return torch.cat(rows)[group.argsort(stable=True).argsort()]

    def matrix(self, layer: int, head: int, slots: int) -> Float[Tensor, "slots slots"]:
        matrix = torch.as_tensor(self.function(layer, head, slots))
        if matrix.shape != (slots, slots):
            raise DataError(
                f"the function returned a matrix of shape {tuple(matrix.shape)} for head "
                f"({layer}, {head}), expected ({slots}, {slots}): a row and a column for each "
                "slot"
            )
        return matrix


def normalised(rows: Float[Tensor, "*any keys"]) -> Float[Tensor, "*any keys"]:
    """Divide rows by their sums; a row of zeros stays."""
    sums = rows.abs().sum(dim=-1, keepdim=True)
    return rows / torch.where(sums == 0, 1.0, sums)


def beside_sink(
    rows: Float[Tensor, "batch chosen queries keys"], sinks: Float[Tensor, " chosen"] | None
) -> Float[Tensor, "batch chosen queries keys"]:
    """Scale rows so that they leave a learned sink its share: they sum to less than one.

    Args:
        rows: weights of tokens. Without ``sinks`` what a row lacks to one is the sink's share.
        sinks: weight of each head's sink, on the scale of ``rows``.
    """
    sums = rows.abs().sum(dim=-1, keepdim=True)
    if sinks is None:
        return rows / sums.clamp(min=1.0)
    return rows / (sums + sinks.to(rows)[:, None, None]).clamp(min=torch.finfo(rows.dtype).tiny)


def read_at(
    matrices: Float[Tensor, "heads slots slots"],
    heads: Int[Tensor, " chosen"],
    query_slots: Int[Tensor, "#batch queries"],
    key_slots: Int[Tensor, "#batch keys"],
) -> Float[Tensor, "#batch chosen queries keys"]:
    """Read the matrices of some heads at the slots of each pair of tokens, by one flat look-up."""
    pairs = query_slots[:, :, None] * matrices.shape[-1] + key_slots[:, None, :]
    entries = matrices.index_select(0, heads).flatten(1).index_select(1, pairs.flatten())
    return entries.unflatten(1, pairs.shape).transpose(0, 1)


@dataclass(frozen=True)
class Mixed(Substitute):
    """λA + (1-λ)C (Hassid et al., 2022, Section 3.2); with ``Streaming`` as C DuoAttention's
    forward pass (Xiao et al., 2025). ``shares`` are λ of every head, or of every group of as many
    neighbouring heads; for all texts, or for each.
    """

    substitute: Substitute
    shares: Float[Tensor, "layers *batch heads_or_groups"]
    reads_attention: ClassVar[bool] = True
    mixes: ClassVar[bool] = True

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        share = self.shares[layer]
        heads_per_share = attention.value.shape[1] // share.shape[-1]
        owners = tuple(head // heads_per_share for head in heads)
        share = share[..., indices(owners, share.device), None, None].to(attention.value.device)
        if attention.dropout > 0 and isinstance(self.substitute, Weights):
            # Entries of the mix itself are dropped, so here it is written out.
            constant = self.substitute.matrices_of(attention, layer, heads)
            mix = constant + share * (attention.probabilities(heads) - constant)
            value = states_of_heads(attention.value, heads)
            return F.dropout(mix, attention.dropout) @ value.to(mix.dtype)
        # The mix is linear in V, so only what A and C output is ever added.
        constant = at_least_single(self.substitute.output(attention, layer, heads))
        return constant + share.to(constant.dtype) * (attention.output(heads) - constant)


@dataclass(frozen=True)
class Replacing(Rule):
    """The rule of one layer some of whose heads output a substitute."""

    substitute: Substitute
    layer: int
    heads: Heads

    @property
    def mixes(self) -> bool:
        mixed = self.substitute
        return mixed.substitute.mixes if isinstance(mixed, Mixed) else mixed.mixes

    def constant(self, outer: frozenset[int]) -> frozenset[int]:
        if self.substitute.reads_attention:
            return outer.difference(self.heads)
        return outer.union(self.heads)

    def output(self, attention: LayerAttention, heads: Heads) -> Tensor:
        replaced = tuple(head for head in heads if head in self.heads)
        if replaced == heads:
            return self.substitute.output(attention, self.layer, heads)
        untouched = tuple(head for head in heads if head not in replaced)
        outputs = [attention.output(untouched)]
        if replaced:
            outputs.append(self.substitute.output(attention, self.layer, replaced))
        states = torch.cat([at_least_single(output) for output in outputs], dim=1)
        order = tuple(map((*untouched, *replaced).index, heads))
        return states[:, indices(order, states.device)]


def rules_of(substitute: Substitute, pairs: Iterable[tuple[int, int]]) -> dict[int, Rule]:
    """Return the rules of a model's layers some of whose heads, (layer, head), output a
    substitute.
    """
    heads_by_layer: dict[int, list[int]] = {}
    for layer, head in sorted(pairs):
        heads_by_layer.setdefault(layer, []).append(head)
    return {
        layer: Replacing(substitute, layer, tuple(heads)) for layer, heads in heads_by_layer.items()
    }
