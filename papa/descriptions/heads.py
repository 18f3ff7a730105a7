"""Descriptions of heads and layers: similarity, separators, norms, mixing, outliers."""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from torch.special import entr

from papa.descriptions.observation import Means, Observation, measure_rows
from papa.spec.orders import head_name

SMOOTHING = 0.001
"""Rows are (1 - this) · p + this / n before they are compared (Clark et al., 2019)."""
CHUNK_ENTRIES = 1 << 20
"""Entries of attention that are compared at a time."""


class Similarity(Means):
    """A row for each pair of heads, ``of`` the second, as L0H11 (Clark et al., 2019, Section 6).

    Means over tokens of the Jensen-Shannon ``divergence`` of their smoothed rows in nats, and of
    the ``cosine`` of their outputs.
    """

    heads = 0

    def observe(self, text: Observation) -> None:
        self.heads = text.attention.shape[1]
        output = text.output.flatten(0, 1).double()
        directions = torch.nn.functional.normalize(output, dim=-1).flatten(1)
        sums = {
            "divergence": divergences(text.attention.flatten(0, 1)),
            "cosine": directions @ directions.T,
        }
        self.add(text.source, len(text.separators), sums)

    def frame(self) -> pd.DataFrame:
        frames = []
        for mean in self.means():
            numbers = np.arange(len(mean.value))
            layers = numbers // self.heads
            heads = numbers % self.heads
            names = np.array([*map(head_name, layers.tolist(), heads.tolist())])
            first, second = np.triu_indices(len(mean.value), 1)
            frames.append(
                measure_rows(
                    mean.source,
                    mean.measure,
                    mean.value[first, second],
                    mean.half_width[first, second],
                    layer=layers[first],
                    head=heads[first],
                    of=names[second],
                )
            )
        return pd.concat(frames, ignore_index=True)


def divergences(attention: Float[Tensor, "heads n n"]) -> Float[Tensor, "heads heads"]:
    """Return the Jensen-Shannon divergence of each pair of heads in nats, a sum over rows."""
    heads, n, _ = attention.shape
    sums = torch.zeros(heads, heads, dtype=torch.double)
    # A chunk of rows and one head at a time: all at once would hold heads² matrices.
    for chunk in attention.split(max(1, CHUNK_ENTRIES // (heads * n)), dim=1):
        smooth = (1 - SMOOTHING) * chunk.double() + SMOOTHING / n
        entropy = entr(smooth).sum(dim=-1)
        for head in range(heads):
            mixture = smooth[head:].add(smooth[head]).div_(2)
            divergence = entr(mixture).sum(dim=-1) - (entropy[head:] + entropy[head]) / 2
            sums[head, head:] += divergence.sum(dim=-1)
    return sums + sums.triu(1).T


class Separators(Means):
    """A row for each head (Bondarenko et al., 2023, Section 3).

    Means over tokens: ``separator_mass``, the attention that they put on separators, 0 to 1, and
    ``update``, the norm of a head's output for a token, before the layer's output map.
    """

    def observe(self, text: Observation) -> None:
        sums = {
            "separator_mass": text.attention[..., text.separators].sum(dim=(-1, -2)),
            "update": text.output.norm(dim=-1).sum(dim=-1),
        }
        self.add(text.source, len(text.separators), sums)


class Norms(Means):
    """A row for each head (Kobayashi et al., 2020, Section 3), means over tokens.

    Token j brings ‖α_ij v_j W_O‖ to token i. ``separator_norm`` is the share of this that comes
    from separators, as ``separator_mass`` is the share of α; ``own_norm`` the share that a token
    brings itself; ``added`` the norm of all that the head adds to a token, behind the output map.
    """

    def observe(self, text: Observation) -> None:
        shares = text.attention * _norms(text.value, text.output_maps)[:, :, None]
        # A head whose values are all zero brings nothing.
        shares /= shares.sum(dim=-1, keepdim=True).clamp_min(_TINY)
        sums = {
            "separator_norm": shares[..., text.separators].sum(dim=(-1, -2)),
            "own_norm": shares.diagonal(dim1=-2, dim2=-1).sum(dim=-1),
            "added": _norms(text.output, text.output_maps).sum(dim=-1),
        }
        self.add(text.source, len(text.separators), sums)


def _norms(
    states: Float[Tensor, "layers heads n head_width"],
    output_maps: Float[Tensor, "layers heads head_width width"],
) -> Float[Tensor, "layers heads n"]:
    """Return norms behind the output map. Layer by layer, as each head's vectors there are as wide
    as the model.
    """
    return torch.stack(
        [
            (states_of_layer @ output_map).norm(dim=-1)
            for states_of_layer, output_map in zip(states, output_maps, strict=True)
        ]
    )


class Mixing(Means):
    """A row for each layer (Kobayashi et al., 2021, Section 3), means over tokens.

    ``mixing`` is m / (m + k), where m is the norm of what all heads bring a token from other
    tokens and k that of what they bring it from itself; for ``mixing_with_residual`` k has the
    token's own state with it, and for ``mixing_behind_norm`` both are taken behind the layer
    normalisation that follows. It is null where layers normalise before attention.
    """

    def observe(self, text: Observation) -> None:
        def behind_output_map(
            outputs: Float[Tensor, "layers heads n head_width"],
        ) -> Float[Tensor, "layers n width"]:
            return torch.einsum("lhnd,lhdw->lnw", outputs, text.output_maps)

        self_attention = text.attention.diagonal(dim1=-2, dim2=-1)[..., None]
        from_itself = behind_output_map(self_attention * text.value)
        from_others = behind_output_map(text.output) - from_itself
        preserved = from_itself + text.states[:-1]
        norm_weights = torch.tensor(torch.nan) if text.norm_weights is None else text.norm_weights
        norm_weights = norm_weights.expand(preserved[:, 0].shape)
        sums = {
            "mixing": _mixing_ratio(from_others, from_itself),
            "mixing_with_residual": _mixing_ratio(from_others, preserved),
            "mixing_behind_norm": _mixing_ratio(
                behind_norm(from_others, norm_weights), behind_norm(preserved, norm_weights)
            ),
        }
        self.add(text.source, len(text.separators), sums)


def behind_norm(
    term: Float[Tensor, "layers n width"], norm_weights: Float[Tensor, "layers width"]
) -> Float[Tensor, "layers n width"]:
    """Return what a term of a sum adds to the sum's layer normalisation, times its σ."""
    return (term - term.mean(dim=-1, keepdim=True)) * norm_weights[:, None]


_TINY = 1e-12
"""The least denominator: 0/0 is 0."""


def _mixing_ratio(
    mixed: Float[Tensor, "layers n width"], preserved: Float[Tensor, "layers n width"]
) -> Float[Tensor, " layers"]:
    """Return ‖mixed‖ / (‖mixed‖ + ‖preserved‖), a sum over tokens."""
    norm = mixed.norm(dim=-1)
    return (norm / (norm + preserved.norm(dim=-1)).clamp_min(_TINY)).sum(dim=-1)


class Outliers(Means):
    """A row for each layer's hidden states, 0 being the embeddings (Bondarenko et al., 2023,
    Section 5).

    Means over texts: ``kurtosis`` of a text's numbers, 3 for a normal distribution; ``largest``
    absolute number. Constants without their model have no states of their own.
    """

    def observe(self, text: Observation) -> None:
        if text.source == "constant":
            return
        numbers = text.states.double().flatten(1)
        fourth = (numbers - numbers.mean(dim=1, keepdim=True)).pow(4).mean(dim=1)
        sums = {
            "kurtosis": fourth / (numbers.var(dim=1).square() + 1e-6),
            "largest": numbers.abs().amax(dim=1),
        }
        self.add(text.source, 1, sums)
