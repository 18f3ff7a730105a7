"""Replace chosen heads' attention by constants; the encoder is whole again after the block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.distances import DistanceWeights
from papa.attention.outputs import ConstantOutputs
from papa.attention.product import at_slots, constant_product
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

    def add(self, seen: Bool[Tensor, "slots slots"], batch: MicroBatch) -> None:
        """Count what the inputs of a batch read."""
        real = batch.attention_mask.double()
        unseen = (~seen[batch.columns[:, None], batch.columns]).double()
        self.read += float(real.sum(dim=1).square().sum())
        # rᵀ·U·r summed over the inputs, without a matrix for each of them.
        self.unseen += float(((real @ unseen) * real).sum())

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

    def part(self, layer: int, heads: Int[Tensor, " constant"]) -> _AnyPart:
        """Its heads of one layer."""
        if isinstance(self.constants, ConstantOutputs):
            return _OutputPart(self.constants, layer, heads)
        # Every layer reads the same entries, so one layer counts them.
        counts = self.counts if layer == self.heads[0][0] else None
        if isinstance(self.constants, DistanceWeights):
            return _DistancePart(self.constants, layer, heads, counts)
        return _Part(self.constants.matrices[layer], heads, self.constants.seen, counts)


@dataclass(frozen=True)
class _OutputPart:
    """The heads of one layer that put out what one block says."""

    constants: ConstantOutputs
    layer: int
    heads: Int[Tensor, " constant"]

    def product(self, value: Tensor, batch: MicroBatch, dropout: float) -> Tensor:
        lengths = batch.attention_mask.sum(dim=1)
        # Read at every pass: the outputs may be in training.
        return self.constants.at(self.layer, self.heads, lengths, batch.columns[None]).to(
            value.dtype
        )


@dataclass(frozen=True)
class _Part:
    """The heads of one layer that one block makes constant; its first such layer counts entries."""

    matrices: Float[Tensor, "heads slots slots"]
    heads: Int[Tensor, " constant"]
    seen: Bool[Tensor, "slots slots"]
    counts: EntryCounts | None

    def product(self, value: Tensor, batch: MicroBatch, dropout: float) -> Tensor:
        if self.counts is not None:
            self.counts.add(self.seen, batch)
        # Read at every pass: the matrices may be in training.
        matrices = at_slots(self.matrices, self.heads, batch.columns).to(value.dtype)
        return constant_product(matrices, value, batch.attention_mask, dropout)


@dataclass(frozen=True)
class _DistancePart:
    """The heads of one layer that go by distance, in inputs whose columns are their positions."""

    constants: DistanceWeights
    layer: int
    heads: Int[Tensor, " constant"]
    counts: EntryCounts | None

    def product(self, value: Tensor, batch: MicroBatch, dropout: float) -> Tensor:
        real, columns = batch.attention_mask, batch.columns
        if self.counts is not None:
            self.counts.add(self.constants.seen(columns), batch)
        return self.constants.product(self.layer, self.heads, value, columns, real)


_AnyPart = _Part | _OutputPart | _DistancePart


@dataclass
class _Replacing:
    """The rule of one layer with constant heads, and the blocks from which all rules follow."""

    parts: tuple[_AnyPart, ...]
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

    As they were is input-dependent, or constant in a block around this one.

    Args:
        constants: C, whose rows are masked and normalised for each input; or weights of distances,
            for inputs whose tokens stand side by side; or what heads put out.

    Yields:
        What the inputs that pass through read of the constants, and how much of it the average had
        never seen.
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
        parts, dependent = list[_AnyPart](), set(range(encoder.heads))
        for block in blocks:
            own = [head for at, head in block.heads if at == layer]
            if own:
                parts.append(block.part(layer, torch.tensor(own, device=encoder.device)))
                dependent -= set(own)
        left = torch.tensor(sorted(dependent), dtype=torch.long, device=encoder.device)
        rules[layer] = _Replacing(tuple(parts), left, blocks)
    return rules
