"""Mix every head's own attention with its constant matrix: B = λA + (1-λ)C (paper, Section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.mixed_product import mixed_product
from papa.attention.replacement import at_slots, check_fits, constant_product, normalised_rows
from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import InputDependentAttention, at_least_single
from papa.encoders.encoder import Encoder

MOST_COLUMNS = 128
"""Up to here the mix of a micro-batch is written out on a CPU. It takes batch · heads · m² numbers
a layer, which short inputs keep small; with longer ones the fused product is as fast and holds none
of them.
"""


@dataclass(frozen=True)
class _Mixing:
    """The rule of one layer: the mix is linear in V, so only what A and C put out is ever added."""

    matrices: Float[Tensor, "heads slots slots"]
    share: Float[Tensor, "heads 1 1"]
    dependent_heads: None = None

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        all_heads = torch.arange(len(self.matrices), device=value.device)
        single = at_least_single(value)
        matrices = at_slots(self.matrices, all_heads, batch.columns).to(single.dtype)
        if own.dropout > 0:
            return self._with_dropout(own, single, matrices, batch)
        if value.device.type == "cpu" and len(batch.columns) <= MOST_COLUMNS:
            return mixed_product(
                own, value, normalised_rows(matrices, batch.attention_mask), self.share
            )
        constant = constant_product(matrices, single, batch.attention_mask)
        return constant + self.share * (own.product(value) - constant)

    def _with_dropout(
        self, own: InputDependentAttention, value: Tensor, matrices: Tensor, batch: MicroBatch
    ) -> Tensor:
        """Entries of the mix itself are dropped, so here it is written out."""
        probabilities = replace(own, dropout=0.0).probabilities()
        constant = normalised_rows(matrices, batch.attention_mask)
        mix = constant + self.share * (probabilities - constant)
        return torch.matmul(F.dropout(mix, own.dropout), value)


def mixed(
    encoder: Encoder, constants: ConstantMatrices, theta: Float[Tensor, "layers heads"]
) -> AbstractContextManager[None]:
    """Inside the block every head puts out λ·A·V + (1-λ)·C·V with λ = sigmoid(θ) as θ was at its
    start.

    Gradients reach θ: of one backward pass, so training opens a block for each.

    Raises:
        ArtifactError: the matrices do not fit the encoder.
    """
    return mixed_by(encoder, constants, theta.sigmoid())


@contextmanager
def mixed_by(
    encoder: Encoder, constants: ConstantMatrices, shares: Float[Tensor, "layers heads"]
) -> Iterator[None]:
    """``mixed`` with the shares themselves in λ's place."""
    check_fits(constants, encoder)
    matrices = constants.matrices.to(encoder.device)
    # Unbound at once for all layers: what shares follow from gets one gradient and not one a layer.
    by_layer = shares[:, :, None, None].unbind()
    rules = {layer: _Mixing(matrices[layer], share) for layer, share in enumerate(by_layer)}
    with encoder.ruled(rules):
        yield
