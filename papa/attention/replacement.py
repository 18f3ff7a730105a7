"""Replace chosen heads' attention by constant matrices; the encoder is whole again after the block.

The product of a constant matrix with values is masked and row-normalised without a matrix for each
input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.outputs import ConstantOutputs
from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import InputDependentAttention, at_least_single
from papa.encoders.encoder import Encoder
from papa.errors import ArtifactError
from papa.spec.orders import Head


@dataclass
class EntryCounts:
    """Entries of the constant matrices that inputs read; one matrix stands for all heads, which
    read the same entries.

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

    constants: ConstantMatrices | ConstantOutputs
    heads: tuple[Head, ...]
    counts: EntryCounts

    def part(self, layer: int, heads: Int[Tensor, " constant"]) -> _Part | _OutputPart:
        """Its heads of one layer."""
        if isinstance(self.constants, ConstantOutputs):
            return _OutputPart(self.constants, layer, heads)
        # Every layer reads the same entries, so one layer counts them.
        counts = self.counts if layer == self.heads[0][0] else None
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


@dataclass
class _Replacing:
    """The rule of one layer with constant heads, and the blocks from which all rules follow."""

    parts: tuple[_Part | _OutputPart, ...]
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


def check_fits(constants: ConstantMatrices | ConstantOutputs, encoder: Encoder) -> None:
    """Refuse constants that are not one for each head of the encoder.

    Raises:
        ArtifactError: the numbers of layers or heads differ.
    """
    layers, heads = constants.values.shape[:2]
    if (layers, heads) != (encoder.layers, encoder.heads):
        raise ArtifactError(
            f"constant matrices are for {layers} layers of {heads} heads, the encoder has "
            f"{encoder.layers} of {encoder.heads}: rerun 'average' for this encoder"
        )


@contextmanager
def replaced(
    encoder: Encoder, constants: ConstantMatrices | ConstantOutputs, heads: Sequence[Head]
) -> Iterator[EntryCounts]:
    """Inside the block, ``heads`` use constants; the others stay as they were (Section
    3.1).

    As they were is input-dependent, or constant in a block around this one.

    Args:
        encoder: changed inside the block, as before after it.
        constants: C, whose rows are masked and normalised for each input; or what heads put out.
        heads: (layer, head) of the constant heads.

    Yields:
        What the inputs that pass through read of the constants, and how much of it the average had
        never seen.

    Raises:
        ArtifactError: the matrices do not fit the encoder.
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
        parts, dependent = list[_Part | _OutputPart](), set(range(encoder.heads))
        for block in blocks:
            own = [head for at, head in block.heads if at == layer]
            if own:
                parts.append(block.part(layer, torch.tensor(own, device=encoder.device)))
                dependent -= set(own)
        left = torch.tensor(sorted(dependent), dtype=torch.long, device=encoder.device)
        rules[layer] = _Replacing(tuple(parts), left, blocks)
    return rules


def at_slots(
    matrices: Float[Tensor, "heads slots slots"],
    chosen: Int[Tensor, " chosen"],
    slots: Int[Tensor, " m"],
) -> Float[Tensor, "chosen m m"]:
    """Return C of the chosen heads at the batch's slots; a flat look-up is ten times faster."""
    size, m = matrices.shape[-1], len(slots)
    if m == size:
        return matrices.index_select(0, chosen)
    pairs = (slots[:, None] * size + slots).flatten()
    entries = (chosen[:, None] * (size * size) + pairs).flatten()
    return matrices.flatten().index_select(0, entries).view(-1, m, m)


def constant_product(
    matrices: Float[Tensor, "heads m m"],
    value: Float[Tensor, "batch heads m width"],
    attention_mask: Bool[Tensor, "batch m"],
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads m width"]:
    """Return what constant heads put out (paper, Section 3.1).

    Args:
        matrices: C at the batch's slots.
        value: V of the same heads.
        attention_mask: r, where inputs have tokens.
        dropout: probability with which entries are dropped; above 0 each input needs matrices of
            its own.

    Returns:
        The rows of C on real slots, divided by their sums, times V; a row that sums to 0 puts out
        0. Sums are of absolute values, which matters only to trained matrices, whose entries may be
           negative.
    """
    if dropout > 0:
        rows = F.dropout(normalised_rows(matrices, attention_mask), dropout)
        return torch.matmul(rows, value)
    batch, heads, m, width = value.shape
    all_real = bool(attention_mask.all())
    if all_real:
        # Without padding every input divides by the same sums: rows are normalised once a batch.
        sums = matrices.abs().sum(dim=-1, keepdim=True)
        rows = matrices / torch.where(sums == 0, 1.0, sums)
        mixed = torch.bmm(rows, value.permute(1, 2, 0, 3).reshape(heads, m, batch * width))
        return mixed.view(heads, m, batch, width).permute(2, 0, 1, 3)
    return masked_product(matrices, value, attention_mask)


def masked_product(
    matrices: Float[Tensor, "heads m m"],
    value: Float[Tensor, "batch heads m width"],
    attention_mask: Bool[Tensor, "batch m"],
) -> Float[Tensor, "batch heads m width"]:
    """``constant_product`` in fixed steps, whatever the mask."""
    batch, heads, m, width = value.shape
    real = attention_mask.to(value.dtype)
    # Values of padding are cleared instead of columns of C, so that one product serves all inputs.
    masked = (value * real[:, None, :, None]).permute(1, 2, 0, 3).reshape(heads, m, batch * width)
    mixed = torch.bmm(matrices, masked).view(heads, m, batch, width)
    sums = torch.matmul(matrices.abs(), real.T)[..., None]
    mixed = mixed / torch.where(sums == 0, 1.0, sums)
    return mixed.permute(2, 0, 1, 3)


def normalised_rows(
    matrices: Float[Tensor, "heads m m"], attention_mask: Bool[Tensor, "batch m"]
) -> Float[Tensor, "batch heads m m"]:
    """C as every input sees it: masked by its keys, rows divided by their sums. Only dropout needs
    it written out.
    """
    masked = matrices * attention_mask[:, None, None, :]
    sums = masked.abs().sum(dim=-1, keepdim=True)
    return masked / torch.where(sums == 0, 1.0, sums)
