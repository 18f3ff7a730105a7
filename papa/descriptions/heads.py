"""What single heads and layers do: which are alike, which do nothing, what they bring and mix."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from torch.special import entr

from papa.descriptions.seen import Means, Seen, rows

SMOOTHING = 0.001
"""Rows are (1 - this) · p + this / n before they are compared (Clark et al., 2019)."""
PART = 1 << 20
"""Entries of attention that are compared at a time."""


class Similarity(Means):
    """A row for each pair of heads, ``of`` the second as layer.head (Clark et al., 2019, Section
    6): means over tokens of the Jensen-Shannon ``divergence`` of their smoothed rows in nats, and
    of the ``cosine`` of their outputs.
    """

    heads = 0

    def see(self, seen: Seen) -> None:
        self.heads, output = seen.attention.shape[1], seen.output.flatten(0, 1).double()
        unit = torch.nn.functional.normalize(output, dim=-1).flatten(1)
        sums = {"divergence": divergences(seen.attention.flatten(0, 1)), "cosine": unit @ unit.T}
        self.add(seen.of, len(seen.separators), sums)

    def frame(self) -> pd.DataFrame:
        parts = []
        for of, measure, mean, half in self.told():
            layer, head = divmod(np.arange(len(mean)), self.heads)
            names = np.array([f"{one}.{own}" for one, own in zip(layer, head, strict=True)])
            first, second = pairs = np.triu_indices(len(mean), 1)
            named = {"layer": layer[first], "head": head[first], "of": names[second]}
            parts.append(rows(of, measure, mean[pairs], half[pairs], **named))
        return pd.concat(parts, ignore_index=True)


def divergences(attention: Float[Tensor, "heads n n"]) -> Float[Tensor, "heads heads"]:
    """The Jensen-Shannon divergence of the rows of each pair of heads, nats, added up over rows."""
    heads, n, _ = attention.shape
    found = torch.zeros(heads, heads, dtype=torch.double)
    # Some rows and one head at a time: all at once would hold heads² matrices.
    for some in attention.split(max(1, PART // (heads * n)), dim=1):
        smooth = (1 - SMOOTHING) * some.double() + SMOOTHING / n
        own = entr(smooth).sum(dim=-1)
        for head in range(heads):
            mixed = smooth[head:].add(smooth[head]).div_(2)
            apart = entr(mixed).sum(dim=-1) - (own[head:] + own[head]) / 2
            found[head, head:] += apart.sum(dim=-1)
    return found + found.triu(1).T


class Separators(Means):
    """A row for each head (Bondarenko et al., 2023, Section 3).

    Means over tokens: ``separator_mass``, the attention that they put on separators, 0 to 1, and
    ``update``, the norm of what the head puts out for one, before the layer's output map.
    """

    def see(self, seen: Seen) -> None:
        sums = {
            "separator_mass": seen.attention[..., seen.separators].sum(dim=(-1, -2)),
            "update": seen.output.norm(dim=-1).sum(dim=-1),
        }
        self.add(seen.of, len(seen.separators), sums)


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


class Mixing(Means):
    """A row for each layer (Kobayashi et al., 2021, Section 3), means over tokens.

    ``mixing`` is m / (m + k), where m is the norm of what all heads bring a token from other
    tokens and k that of what they bring it from itself; for ``mixing_with_residual`` k has the
    token's own state with it, and for ``mixing_behind_norm`` both are taken behind the layer
    normalisation that follows. It is null where layers normalise before attention.
    """

    def see(self, seen: Seen) -> None:
        of_itself = seen.attention.diagonal(dim1=-2, dim2=-1)[..., None] * seen.value
        both = (of_itself, seen.output)
        own, whole = (torch.einsum("lhnd,lhdw->lnw", one, seen.output_maps) for one in both)
        others, kept = whole - own, own + seen.states[:-1]
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


class Outliers(Means):
    """A row for each layer's hidden states, 0 being the embeddings (Bondarenko et al., 2023,
    Section 5).

    Means over texts: ``kurtosis`` of a text's numbers, 3 for a normal distribution; ``largest``
    absolute number. Constants without their model have no states of their own.
    """

    def see(self, seen: Seen) -> None:
        if seen.of == "constant":
            return
        numbers = seen.states.double().flatten(1)
        fourth = (numbers - numbers.mean(dim=1, keepdim=True)).pow(4).mean(dim=1)
        sums = {
            "kurtosis": fourth / (numbers.var(dim=1).square() + 1e-6),
            "largest": numbers.abs().amax(dim=1),
        }
        self.add(seen.of, 1, sums)
