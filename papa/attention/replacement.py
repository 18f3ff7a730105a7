"""Replace chosen heads' attention by constants, or by that of the layer before (after Reuse
Transformer, Bhojanapalli et al., 2021); the encoder is whole again after the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices, DistanceWeights
from papa.attention.outputs import ConstantOutputs
from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import InputDependentAttention, at_least_single
from papa.encoders.encoder import Encoder
from papa.errors import ArtifactError
from papa.spec.orders import Head

Constants = ConstantMatrices | ConstantOutputs | DistanceWeights


@dataclass
class EntryCounts:
    """Entries of the constants that inputs read; one matrix stands for all heads, which read the
    same entries.

    Attributes:
        read: pairs of real slots, over all inputs.
        unseen: those of them that no input of the average had; their entry is 0.
    """

    read: float = 0.0
    unseen: float = 0.0

    def add(self, seen: Bool[Tensor, "m m"], batch: MicroBatch) -> None:
        """Count what the inputs of a batch read."""
        real = batch.attention_mask.double()
        self.read += float(real.sum(dim=1).square().sum())
        # rᵀ·U·r summed over the inputs, without a matrix for each of them.
        self.unseen += float(((real @ (~seen).double()) * real).sum())

    @property
    def unseen_share(self) -> float:
        """The share of entries read that the average had never seen; 0 before any input."""
        return self.unseen / self.read if self.read else 0.0


@dataclass(frozen=True)
class _Block:
    """What one ``replaced`` in force was given, on the encoder's device, and the heads that no
    block inside it has, in order."""

    constants: Constants
    heads: tuple[Head, ...]
    counts: EntryCounts


@dataclass(frozen=True)
class _Part:
    """The heads of one layer that one block makes constant; its first such layer counts entries, as
    every layer reads the same.
    """

    block: _Block
    layer: int
    heads: Int[Tensor, " constant"]

    def product(self, value: Tensor, batch: MicroBatch, dropout: float) -> Tensor:
        constants, columns = self.block.constants, batch.columns
        if self.layer == self.block.heads[0][0]:
            seen = constants.seen_at(columns)
            if seen is not None:
                self.block.counts.add(seen, batch)
        # Read at every pass: the constants may be in training.
        real = batch.attention_mask
        return constants.product(self.layer, self.heads, value, columns, real, dropout)


@dataclass
class _Replacing:
    """The rule of one layer with constant heads, and the blocks from which all rules follow."""

    parts: tuple[_Part, ...]
    dependent_heads: Int[Tensor, " dependent"]
    blocks: tuple[_Block, ...]

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        single = at_least_single(value)
        if len(self.parts) == 1 and self.dependent_heads.numel() == 0:
            # All heads are one part: there is nothing to put together.
            return self.parts[0].product(single, batch, own.dropout)
        output = torch.empty_like(single)
        for part in self.parts:
            output[:, part.heads] = part.product(single[:, part.heads], batch, own.dropout).to(
                output.dtype
            )
        if self.dependent_heads.numel():
            output[:, self.dependent_heads] = own.product(value[:, self.dependent_heads]).to(
                output.dtype
            )
        return output


def check_fits(constants: Constants, encoder: Encoder) -> None:
    """Refuse constants that are not one for each head of the encoder."""
    layers, heads = constants.values.shape[:2]
    if (layers, heads) != (encoder.layers, encoder.heads):
        raise ArtifactError(
            f"constant matrices are for {layers} layers of {heads} heads, the encoder has "
            f"{encoder.layers} of {encoder.heads}: rerun 'average' for this encoder"
        )


@contextmanager
def replaced(
    encoder: Encoder, constants: Constants, heads: Sequence[Head]
) -> Iterator[EntryCounts]:
    """Inside the block, ``heads`` use constants; the others stay as they were (Section
    3.1).

    As they were is input-dependent, or constant in a block around this one. Constants are C, whose
    rows are masked and normalised for each input; or weights of distances, for inputs whose tokens
    stand side by side; or what heads put out. What inputs read of them is counted.
    """
    check_fits(constants, encoder)
    block = _Block(constants.to(encoder.device), tuple(sorted(heads)), EntryCounts())
    outer: tuple[_Block, ...] = next(
        (getattr(rule, "blocks", ()) for rule in encoder.dispatch.rules.values()), ()
    )
    # The innermost block has the last word: it takes its heads from those around it.
    left = (
        replace(other, heads=tuple(head for head in other.heads if head not in block.heads))
        for other in outer
    )
    with encoder.ruled(_rules(encoder, (block, *left))):
        yield block.counts


def _rules(encoder: Encoder, blocks: tuple[_Block, ...]) -> dict[int, _Replacing]:
    rules: dict[int, _Replacing] = {}
    for layer in sorted({layer for block in blocks for layer, _ in block.heads}):
        parts, dependent = list[_Part](), set(range(encoder.heads))
        for block in blocks:
            own = [head for at, head in block.heads if at == layer]
            if own:
                parts.append(_Part(block, layer, torch.tensor(own, device=encoder.device)))
                dependent -= set(own)
        left = torch.tensor(sorted(dependent), dtype=torch.long, device=encoder.device)
        rules[layer] = _Replacing(tuple(parts), left, blocks)
    return rules


@dataclass
class _Reusing:
    """The rule of one layer whose ``reusing`` heads mix by A of the layer ``before``, which every
    layer writes for the next.
    """

    reusing: Sequence[int]
    dependent_heads: Int[Tensor, " dependent"]
    before: dict[int, InputDependentAttention]

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        output = torch.empty_like(at_least_single(value))
        for place, head in enumerate(self.dependent_heads.tolist()):
            self.before[head] = _one(own, slice(place, place + 1))
        if self.dependent_heads.numel():
            dependent = own.product(value[:, self.dependent_heads])
            output[:, self.dependent_heads] = dependent.to(output.dtype)
        for head in self.reusing:
            found = self.before[head].product(value[:, head : head + 1])
            output[:, head : head + 1] = found.to(output.dtype)
        return output


def _one(own: InputDependentAttention, place: slice) -> InputDependentAttention:
    bias = None if own.bias is None else own.bias[:, place]
    return replace(own, query=own.query[:, place], key=own.key[:, place], bias=bias)


@contextmanager
def reused(encoder: Encoder, heads: Sequence[Head]) -> Iterator[None]:
    """Inside the block these heads mix by A of the same head of the layer before, or by what that
    one reuses itself. Heads of the first layer keep their own.
    """
    before: dict[int, InputDependentAttention] = {}
    rules = {}
    for layer in range(encoder.layers):
        own = sorted(head for at, head in heads if at == layer and layer)
        kept = [head for head in range(encoder.heads) if head not in own]
        dependent = torch.tensor(kept, dtype=torch.long, device=encoder.device)
        rules[layer] = _Reusing(own, dependent, before)
    with encoder.ruled(rules):
        yield
