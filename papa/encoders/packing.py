"""Real tokens side by side: padding that a compact batch still has costs an encoder nothing.

Inputs of a batch need to be apart in attention alone. Whatever a model computes for each token by itself (embeddings,
projections, norms, feed-forward maps) it computes for one long row that holds the real tokens of all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where the tokens of one compact batch stand, apart and together.

    Attributes:
        batch, columns: the batch's shape.
        places: the place (input · columns + column) of each real token, input by input; None where every place holds
            one.
        tokens: which token stands at each place; any where there is none. None like ``places``.
    """

    batch: int
    columns: int
    places: Int[Tensor, " tokens"] | None
    tokens: Int[Tensor, " places"] | None

    @classmethod
    def of(cls, attention_mask: Bool[Tensor, "batch m"], device: torch.device) -> Packing:
        """The packing of a batch, found where its mask lies and used on ``device``."""
        batch, columns = attention_mask.shape
        # Used with and without gradients, which tensors made in inference mode could not be.
        with torch.inference_mode(False):
            real = attention_mask.flatten()
            places = real.nonzero()[:, 0]
            if len(places) == len(real):
                return cls(batch, columns, None, None)
            tokens = (real.cumsum(0) - 1).clamp(min=0)
        return cls(batch, columns, places.to(device), tokens.to(device))

    def inputs(self, values: Shaped[Tensor, "#batch m"]) -> Shaped[Tensor, "1 tokens"]:
        """What a model takes for each token, without the places that have none."""
        flat = values.expand(self.batch, self.columns).flatten()
        return (flat if self.places is None else flat.index_select(0, self.places))[None]

    def apart(self, states: Float[Tensor, "1 tokens width"]) -> Float[Tensor, "batch m width"]:
        """Input by input; places without a token hold some other token's states."""
        flat = states[0] if self.tokens is None else states[0].index_select(0, self.tokens)
        return flat.unflatten(0, (self.batch, self.columns))

    def together(self, states: Float[Tensor, "batch m width"]) -> Float[Tensor, "1 tokens width"]:
        """The states of real tokens, input by input."""
        flat = states.flatten(0, 1)
        return (flat if self.places is None else flat.index_select(0, self.places))[None]
