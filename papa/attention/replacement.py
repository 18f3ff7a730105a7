"""Heads of an encoder replaced, or mixed with constants; it is whole again after the block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.outputs import ConstantOutputs
from papa.attention.substitutes import Mixed, Substitute, by_layer, rules_of
from papa.encoders.dispatch import Heads, LayerAttention
from papa.encoders.encoder import Encoder
from papa.errors import ArtifactError
from papa.spec.orders import Head


class EntryCounts:
    """Entries of the constants that inputs read; one matrix stands for all heads, which read the
    same entries.
    """

    def __init__(self) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64)

    def add(self, seen: Bool[Tensor, "m m"], real: Bool[Tensor, "batch m"]) -> None:
        """Count what inputs read."""
        own = real.double()
        # rᵀ·U·r summed over the inputs, without a matrix for each of them.
        unseen = ((own @ (~seen).double()) * own).sum()
        # On the device, which is not waited for.
        added = torch.stack([own.sum(dim=1).square().sum(), unseen])
        self._sums = self._sums.to(added.device) + added

    @property
    def read(self) -> float:
        """Pairs of real slots, over all inputs."""
        return self._sums[0].item()

    @property
    def unseen(self) -> float:
        """Those of them that no input of the average had; their entry is 0."""
        return self._sums[1].item()

    @property
    def unseen_share(self) -> float:
        """The share of entries read that the average had never seen; 0 before any input."""
        return self.unseen / self.read if self.read else 0.0


@dataclass(frozen=True)
class _Counted(Substitute):
    """Matrices, what is read of which is counted in one layer, as all read the same."""

    matrices: ConstantMatrices
    layer: int
    counts: EntryCounts

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        if layer == self.layer and attention.batch is not None:
            batch = attention.batch
            self.counts.add(self.matrices.seen_at(batch.columns), batch.attention_mask)
        return self.matrices.output(attention, layer, heads)


def check_fits(constants: ConstantMatrices | ConstantOutputs, encoder: Encoder) -> None:
    """Refuse constants that are not one for each head of the encoder."""
    layers, heads = constants.values.shape[:2]
    if (layers, heads) != (encoder.layers, encoder.heads):
        raise ArtifactError(
            f"constant matrices are for {layers} layers of {heads} heads, the encoder has "
            f"{encoder.layers} of {encoder.heads}: rerun 'average' for this encoder"
        )


@contextmanager
def replaced(
    encoder: Encoder, substitute: Substitute, heads: Sequence[Head]
) -> Iterator[EntryCounts]:
    """Inside the block, ``heads`` put out a substitute; the others stay as they were (Section 3.1),
    input-dependent or as in a block around this one. What inputs read of constant matrices, whose
    rows are masked and normalised for each input, is counted.
    """
    counts = EntryCounts()
    if isinstance(substitute, ConstantMatrices | ConstantOutputs):
        check_fits(substitute, encoder)
    substitute = substitute.to(encoder.device)
    if isinstance(substitute, ConstantMatrices) and heads:
        substitute = _Counted(substitute, min(heads)[0], counts)
    with encoder.ruled(rules_of(substitute, by_layer(heads), encoder.layers)):
        yield counts


def mixed(
    encoder: Encoder, constants: ConstantMatrices, theta: Float[Tensor, "layers heads"]
) -> AbstractContextManager[None]:
    """Inside the block every head puts out λ·A·V + (1-λ)·C·V with λ = sigmoid(θ) as θ was at its
    start (paper, Section 3.2).

    Gradients reach θ: of one backward pass, so training opens a block for each.
    """
    return mixed_by(encoder, constants, theta.sigmoid())


def mixed_by(
    encoder: Encoder, constants: ConstantMatrices, shares: Float[Tensor, "layers heads"]
) -> AbstractContextManager[None]:
    """``mixed`` with the shares themselves in λ's place."""
    check_fits(constants, encoder)
    mix = Mixed(constants.to(encoder.device), shares)
    every = dict.fromkeys(range(encoder.layers), range(encoder.heads))
    return encoder.ruled(rules_of(mix, every, encoder.layers))
