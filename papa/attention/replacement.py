"""Replace chosen heads' attention by constant matrices; the encoder is whole again after the block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.product import at_slots, constant_product
from papa.corpora.batches import CompactBatch
from papa.encoders.dispatch import OwnAttention
from papa.encoders.encoder import Encoder
from papa.errors import ArtifactError

Head = tuple[int, int]
"""A head as (layer, head within the layer)."""


@dataclass
class Coverage:
    """How much of what constant heads asked for the average had ever seen.

    Attributes:
        asked: pairs of real slots that inputs asked for.
        unseen: those of them that no input of the average had.
    """

    asked: float = 0.0
    unseen: float = 0.0

    @property
    def unseen_share(self) -> float:
        """The share of entries asked for that the average never saw; 0 before any input."""
        return self.unseen / self.asked if self.asked else 0.0


@dataclass
class _Replacing:
    """The rule of one layer with constant heads."""

    matrices: Float[Tensor, "heads slots slots"]
    constant_heads: Int[Tensor, " constant"]
    own_heads: Int[Tensor, " own"]

    def __call__(self, own: OwnAttention, value: Tensor, batch: CompactBatch) -> Tensor:
        # Read at every pass: the matrices may be in training.
        matrices = at_slots(self.matrices, self.constant_heads, batch.slots).to(value.dtype)
        if self.own_heads.numel() == 0:
            return constant_product(matrices, value, batch.attention_mask, own.dropout)
        output = torch.empty_like(value)
        output[:, self.constant_heads] = constant_product(
            matrices, value[:, self.constant_heads], batch.attention_mask, own.dropout
        )
        output[:, self.own_heads] = own.product(value[:, self.own_heads])
        return output


@dataclass
class _Counting:
    """A layer's rule that also counts coverage, once a batch."""

    rule: _Replacing
    seen: Tensor
    coverage: Coverage
    own_heads: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.own_heads = self.rule.own_heads

    def __call__(self, own: OwnAttention, value: Tensor, batch: CompactBatch) -> Tensor:
        real = batch.attention_mask.double()
        unseen = (~self.seen[batch.slots[:, None], batch.slots]).double()
        self.coverage.asked += float(real.sum(dim=1).square().sum())
        self.coverage.unseen += float(((real @ unseen) * real).sum())
        return self.rule(own, value, batch)


def check_fits(constants: ConstantMatrices, encoder: Encoder) -> None:
    """Refuse matrices that are not one for each head of the encoder.

    Raises:
        ArtifactError: the numbers of layers or heads differ.
    """
    found = tuple(constants.matrices.shape[:2])
    if found != (encoder.layers, encoder.heads):
        raise ArtifactError(
            f"constant matrices are for {found[0]} layers of {found[1]} heads, the encoder has "
            f"{encoder.layers} of {encoder.heads}: rerun 'average' for this encoder"
        )


@contextmanager
def replaced(encoder: Encoder, constants: ConstantMatrices, heads: Sequence[Head]) -> Iterator[Coverage]:
    """Inside the block, ``heads`` use constant matrices; the others keep their own attention (Section 3.1).

    Args:
        encoder: changed inside the block, as before after it.
        constants: C; rows are masked and normalised for each input.
        heads: (layer, head) of the constant heads.

    Yields:
        The coverage of the inputs that pass through.

    Raises:
        ArtifactError: the matrices do not fit the encoder.
    """
    check_fits(constants, encoder)
    by_layer: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        by_layer.setdefault(layer, []).append(head)
    coverage = Coverage()
    seen, matrices = constants.seen.to(encoder.device), constants.matrices.to(encoder.device)
    rules: dict[int, _Replacing | _Counting] = {}
    for layer, constant in by_layer.items():
        own = [head for head in range(encoder.heads) if head not in constant]
        rule = _Replacing(
            matrices=matrices[layer],
            constant_heads=torch.tensor(constant, device=encoder.device),
            own_heads=torch.tensor(own, dtype=torch.long, device=encoder.device),
        )
        rules[layer] = rule if rules else _Counting(rule, seen, coverage)
    with encoder.ruled(rules):
        yield coverage
