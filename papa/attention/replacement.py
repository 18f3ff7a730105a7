"""Replace chosen heads' attention by constant matrices; the encoder is whole again after the block.

The product of a constant matrix with values is masked and row-normalised without a matrix for each input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import InputDependentAttention, at_least_single
from papa.encoders.encoder import Encoder
from papa.errors import ArtifactError
from papa.ranking import Head


@dataclass
class EntryCounts:
    """Entries of the constant matrices that inputs read; one matrix stands for all heads, which read the same entries.

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
        self.unseen += float(((real @ unseen) * real).sum())

    @property
    def unseen_share(self) -> float:
        """The share of entries read that the average had never seen; 0 before any input."""
        return self.unseen / self.read if self.read else 0.0


@dataclass
class _Replacing:
    """The rule of one layer with constant heads; the first such layer counts entries."""

    matrices: Float[Tensor, "heads slots slots"]
    constant_heads: Int[Tensor, " constant"]
    dependent_heads: Int[Tensor, " dependent"]
    seen: Bool[Tensor, "slots slots"]
    counts: EntryCounts | None

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        if self.counts is not None:
            self.counts.add(self.seen, batch)
        # Read at every pass: the matrices may be in training.
        single = at_least_single(value)
        matrices = at_slots(self.matrices, self.constant_heads, batch.columns).to(single.dtype)
        if self.dependent_heads.numel() == 0:
            return constant_product(matrices, single, batch.attention_mask, own.dropout)
        output = torch.empty_like(single)
        constant = constant_product(matrices, single[:, self.constant_heads], batch.attention_mask, own.dropout)
        output[:, self.constant_heads] = constant.to(output.dtype)
        output[:, self.dependent_heads] = own.product(value[:, self.dependent_heads]).to(output.dtype)
        return output


def check_fits(constants: ConstantMatrices, encoder: Encoder) -> None:
    """Refuse matrices that are not one for each head of the encoder.

    Raises:
        ArtifactError: the numbers of layers or heads differ.
    """
    layers, heads = constants.matrices.shape[:2]
    if (layers, heads) != (encoder.layers, encoder.heads):
        raise ArtifactError(
            f"constant matrices are for {layers} layers of {heads} heads, the encoder has "
            f"{encoder.layers} of {encoder.heads}: rerun 'average' for this encoder"
        )


@contextmanager
def replaced(encoder: Encoder, constants: ConstantMatrices, heads: Sequence[Head]) -> Iterator[EntryCounts]:
    """Inside the block, ``heads`` use constant matrices; the others stay input-dependent (Section 3.1).

    Args:
        encoder: changed inside the block, as before after it.
        constants: C; rows are masked and normalised for each input.
        heads: (layer, head) of the constant heads.

    Yields:
        What the inputs that pass through read of the constants, and how much of it the average had never seen.

    Raises:
        ArtifactError: the matrices do not fit the encoder.
    """
    check_fits(constants, encoder)
    by_layer: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        by_layer.setdefault(layer, []).append(head)
    counts = EntryCounts()
    seen, matrices = constants.seen.to(encoder.device), constants.matrices.to(encoder.device)
    rules: dict[int, _Replacing] = {}
    for layer, constant in by_layer.items():
        dependent = [head for head in range(encoder.heads) if head not in constant]
        rules[layer] = _Replacing(
            matrices=matrices[layer],
            constant_heads=torch.tensor(constant, device=encoder.device),
            dependent_heads=torch.tensor(dependent, dtype=torch.long, device=encoder.device),
            seen=seen,
            counts=None if rules else counts,
        )
    with encoder.ruled(rules):
        yield counts


def at_slots(
    matrices: Float[Tensor, "heads slots slots"], chosen: Int[Tensor, " chosen"], slots: Int[Tensor, " m"]
) -> Float[Tensor, "chosen m m"]:
    """C of the chosen heads at the batch's slots; one flat look-up: three index tensors are ten times slower."""
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
    """What constant heads put out (paper, Section 3.1).

    Args:
        matrices: C at the batch's slots.
        value: V of the same heads.
        attention_mask: r, where inputs have tokens.
        dropout: probability with which entries are dropped; above 0 each input needs matrices of its own.

    Returns:
        The rows of C on real slots, divided by their sums, times V; a row that sums to 0 puts out 0. Sums are of
        absolute values, which matters only to trained matrices, whose entries may be negative.
    """
    if dropout > 0:
        rows = F.dropout(normalised_rows(matrices, attention_mask), dropout)
        return torch.matmul(rows, value)
    batch, heads, m, width = value.shape
    all_real = bool(attention_mask.all())
    if all_real:
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
    masked = (value * real[:, None, :, None]).permute(1, 2, 0, 3).reshape(heads, m, batch * width)
    mixed = torch.bmm(matrices, masked).view(heads, m, batch, width)
    sums = torch.matmul(matrices.abs(), real.T)[..., None]
    mixed = mixed / torch.where(sums == 0, 1.0, sums)
    return mixed.permute(2, 0, 1, 3)


def normalised_rows(
    matrices: Float[Tensor, "heads m m"], attention_mask: Bool[Tensor, "batch m"]
) -> Float[Tensor, "batch heads m m"]:
    """C as every input sees it: masked by its keys, rows divided by their sums. Only dropout needs it written out."""
    masked = matrices * attention_mask[:, None, None, :]
    sums = masked.abs().sum(dim=-1, keepdim=True)
    return masked / torch.where(sums == 0, 1.0, sums)
