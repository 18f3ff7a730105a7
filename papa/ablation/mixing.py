"""Heads that put out a mix of their own attention and a substitute."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from papa.ablation.interface import LayerAttention
from papa.ablation.substitutes import Substitute


@dataclass(frozen=True)
class Mixed:
    """λA + (1-λ)C (Hassid et al., 2022, Section 3.2).

    With ``Streaming`` in C's place it is DuoAttention's forward pass in two ways (Xiao et al.,
    2025, Section 3.2).

    Attributes:
        substitute: C.
        shares: λ of every head, of which gradients may be asked.
    """

    substitute: Substitute
    shares: Float[Tensor, "layers heads"]

    def output(self, attention: LayerAttention, layer: int, heads: Tensor) -> Tensor:
        constant = self.substitute.output(attention, layer, heads)
        share = self.shares[layer].to(constant)[heads][:, None, None]
        return constant + share * (attention.output(heads) - constant)
