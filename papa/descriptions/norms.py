"""Attention weighted by what it brings: the norms of what each token adds to another."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen


class Norms(Means):
    """A row for each head (Kobayashi et al., 2020, Section 3), means over tokens.

    Token j brings ‖α_ij v_j W_O‖ to token i. ``separator_norm`` is the share of this that comes
    from separators, as ``separator_mass`` is the share of α; ``own_norm`` the share that a token
    brings itself; ``added`` the norm of all that the head adds to a token, behind the output map.
    """

    def see(self, seen: Seen) -> None:
        shares = seen.attention * _norms(seen.value, seen.output_maps)[:, :, None]
        shares /= shares.sum(dim=-1, keepdim=True).clamp_min(1e-12)
        sums = {
            "separator_norm": shares[..., seen.separators].sum(dim=(-1, -2)),
            "own_norm": shares.diagonal(dim1=-2, dim2=-1).sum(dim=-1),
            "added": _norms(seen.output, seen.output_maps).sum(dim=-1),
        }
        self.add(seen.of, len(seen.separators), sums)


def _norms(
    states: Float[Tensor, "layers heads n head_width"],
    output_maps: Float[Tensor, "layers heads head_width width"],
) -> Float[Tensor, "layers heads n"]:
    """Behind the output map, layer by layer: each head's is as wide as the model."""
    layers = zip(states, output_maps, strict=True)
    return torch.stack([(own @ maps).norm(dim=-1) for own, maps in layers])
