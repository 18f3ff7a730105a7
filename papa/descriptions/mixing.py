"""How much attention mixes tokens, against how much of a token it keeps."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen


class Mixing(Means):
    """A row for each layer (Kobayashi et al., 2021, Section 3), means over tokens.

    ``mixing`` is m / (m + k), where m is the norm of what all heads bring a token from other
    tokens and k that of what they bring it from itself; for ``mixing_with_residual`` k has the
    token's own state with it, and for ``mixing_behind_norm`` both are taken behind the layer
    normalisation that follows. It is null where layers normalise before attention.
    """

    def see(self, seen: Seen) -> None:
        of_itself = seen.attention.diagonal(dim1=-2, dim2=-1)[..., None] * seen.value
        own, whole = (
            torch.einsum("lhnd,lhdw->lnw", heads, seen.output_maps)
            for heads in (of_itself, seen.output)
        )
        others = whole - own
        kept = own + seen.states[:-1]
        sums = {"mixing": _ratio(others, own), "mixing_with_residual": _ratio(others, kept)}
        weights = torch.tensor(torch.nan) if seen.norm_weights is None else seen.norm_weights
        behind = (behind_norm(part, weights.expand(whole[:, 0].shape)) for part in (others, kept))
        self.add(seen.of, whole.shape[1], {**sums, "mixing_behind_norm": _ratio(*behind)})


def behind_norm(
    part: Float[Tensor, "layers n width"], weights: Float[Tensor, "layers width"]
) -> Float[Tensor, "layers n width"]:
    """What a part of a sum adds to the sum's layer normalisation, times its σ."""
    return (part - part.mean(dim=-1, keepdim=True)) * weights[:, None]


def _ratio(
    mixed: Float[Tensor, "layers n width"], kept: Float[Tensor, "layers n width"]
) -> Float[Tensor, " layers"]:
    """‖mixed‖ / (‖mixed‖ + ‖kept‖), added up over tokens."""
    norm = mixed.norm(dim=-1)
    return (norm / (norm + kept.norm(dim=-1)).clamp_min(1e-12)).sum(dim=-1)
