"""Scores that are means over the rows of attention matrices: all in one pass over the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.heads.average import check_sums
from papa.heads.replacement import check_fits
from papa.heads.substitutes import Weights
from papa.models.layer import LayerAttention
from papa.ranking.seeds import HeadScores
from papa.ranking.sets import Asked
from papa.scores.intervals import ratio
from papa.text.batches import micro_batches


class Rows(NamedTuple):
    """One layer's attention over one batch: A; C as it replaces A; V; what gives A·V the norms that
    W_O gives it; where inputs have tokens; and which are separators: like that in the last slot.
    """

    attention: Float[Tensor, "batch heads m m"]
    constant: Float[Tensor, "batch heads m m"]
    value: Float[Tensor, "batch heads m head_width"]
    output_map: Float[Tensor, "heads head_width head_width"]
    real: Bool[Tensor, "batch m"]
    ends: Bool[Tensor, "batch m"]


OfEach = tuple[Float[Tensor, "batch heads m"], Bool[Tensor, "batch m"]]
"""A number for each row, and which of them count."""
OfRows = Callable[[Rows], OfEach]


def confidence(rows: Rows) -> OfEach:
    """The largest weight of each row (Voita et al., 2019, Section 4): separators are no real
    tokens, and neither they nor what looks at them counts.
    """
    looked_at = rows.attention.masked_fill(rows.ends[:, None, None, :], 0)
    return looked_at.amax(-1), rows.real & ~rows.ends


def variance(rows: Rows) -> OfEach:
    """-Σ_j A_ij (μ_i - j)² with μ_i = Σ_j j A_ij (Kim et al., Findings of ACL 2021): 0 for a head
    that looks at one token, less for one that looks far around. j counts the tokens of the input.
    """
    places = (rows.real.cumsum(-1) - 1).to(rows.attention)[:, None, None]
    mean = (rows.attention * places).sum(-1, keepdim=True)
    return -(rows.attention * (mean - places).square()).sum(-1), rows.real


def distance(rows: Rows) -> OfEach:
    """The Jensen-Shannon divergence of each row of A from that of C, in nats: 0 to log 2."""
    own, constant = rows.attention.double(), rows.constant.double()
    middle = (own + constant) / 2
    apart = [torch.xlogy(rows, rows) - torch.xlogy(rows, middle) for rows in (own, constant)]
    return torch.stack(apart).sum((0, -1)) / 2, rows.real


def output_distance(rows: Rows) -> OfEach:
    """‖(A - C)·V·W_O‖ over ‖A·V·W_O‖, norms over an input's tokens and the width: 0 for a head that
    outputs nothing. An input has one number, in its first row.
    """
    own, apart = (
        torch.where(rows.real[:, None, :, None], mixed @ rows.value @ rows.output_map, 0)
        for mixed in (rows.attention, rows.attention - rows.constant)
    )
    norm = own.norm(dim=(-1, -2))
    relative = torch.where(norm > 0, apart.norm(dim=(-1, -2)) / norm, 0)
    first = rows.real & (rows.real.cumsum(-1) == 1)
    return relative[..., None].expand(own.shape[:-1]), first


def first_token_attention(rows: Rows) -> OfEach:
    """-A[i, first]: the attention on the first token, negated, as a head that rests there is missed
    least (Sandoval-Segura et al., 2025). The first token's own row does not count.
    """
    first = rows.real & (rows.real.cumsum(-1) == 1)
    looked_at = rows.attention.masked_fill(~first[:, None, None, :], 0).sum(-1)
    return -looked_at, rows.real & ~first


def output_norm(rows: Rows) -> OfEach:
    """‖A·V‖ of each token: the norm of what the head outputs (Sandoval-Segura et al., 2025)."""
    return (rows.attention @ rows.value).norm(dim=-1), rows.real


@dataclass
class RowMeans:
    """Means over rows of attention, from passes that show it every layer (``observe``).

    Attributes:
        methods: What is said of each row.
        constants: On the model's device; None where no method compares with them.
        output_maps: What gives A·V the norms that W_O gives it; None where no method reads it.
        separators: Of a layer's call, the tokens that are separators.
        sums: Σs, Σs², Σsn, Σn and Σn² over inputs: s is the sum over an input's rows, n their
            number.
    """

    methods: Mapping[str, OfRows]
    constants: Weights | None
    size: tuple[int, int]
    device: torch.device
    separators: Callable[[LayerAttention], Bool[Tensor, "batch m"]]
    output_maps: Float[Tensor, "layers heads head_width head_width"] | None = None
    sums: Float[Tensor, "layers heads methods 5"] = field(init=False)

    def __post_init__(self) -> None:
        shape = (*self.size, len(self.methods), 5)
        self.sums = torch.zeros(shape, dtype=torch.float64, device=self.device)

    def observe(self, attention: LayerAttention, layer: int) -> Tensor:
        """Add the rows of one layer's call; what its heads output."""
        every = attention.every
        probabilities = attention.probabilities(every)
        value = attention.value.to(probabilities.dtype)
        constant = probabilities
        if self.constants is not None:
            constant = self.constants.matrices_of(attention, layer, every)
        rows = Rows(
            probabilities,
            constant,
            value,
            self.output_maps[layer] if self.output_maps is not None else value.new_zeros(0),
            attention.real,
            self.separators(attention),
        )
        for number, of_rows in enumerate(self.methods.values()):
            values, counted = of_rows(rows)
            s = torch.where(counted[:, None], values, 0).double().sum(-1)
            n = counted.sum(-1, keepdim=True).double().expand_as(s)
            moments = torch.stack([s, s * s, s * n, n, n * n], dim=-1).sum(0)
            self.sums[layer, :, number] += moments.to(self.device)
        return torch.matmul(probabilities, value)

    def scores(self, inputs: int) -> dict[str, HeadScores]:
        """The mean of each method, with its standard error over inputs (of a ratio)."""
        moments = np.moveaxis(self.sums.cpu().numpy(), -1, 0)
        means, errors = ratio(inputs, *moments)
        scores: dict[str, HeadScores] = {}
        for number, method in enumerate(self.methods):
            error = errors[..., number] if inputs > 1 else None
            scores[method] = HeadScores(means[..., number][None], error, inputs, 1)
        return scores


def output_norms(
    weights: Float[Tensor, "layers heads head_width width"],
) -> Float[Tensor, "layers heads head_width head_width"]:
    """What gives A·V the norms that W_O gives it: W_O = R·Q with orthonormal rows in Q, which
    change no norm.
    """
    return torch.linalg.qr(weights.float().mT).R.mT


@torch.inference_mode()
def streamed(asked: Asked, methods: Mapping[str, OfRows]) -> dict[str, HeadScores]:
    """Score all heads of a plain encoder by methods that share one pass."""
    encoder = asked.encoder
    split = asked.corpus.split("train")
    rows = asked.rows
    check_fits(asked.constants, encoder)

    def separators(attention: LayerAttention) -> Bool[Tensor, "batch m"]:
        batch = attention.batch
        assert batch is not None
        ends = batch.attention_mask.clone()
        last = batch.input_ids[batch.slot_ids == split.slots - 1]
        ends[batch.inputs_of_tokens, batch.column_ids] = torch.isin(batch.input_ids, last)
        return ends

    means = RowMeans(
        methods,
        asked.constants.to(encoder.device),
        (encoder.layers, encoder.heads),
        encoder.device,
        separators,
        output_norms(encoder.output_maps),
    )
    tokens = encoder.tokens_per_batch(asked.execution.batch_tokens)
    encoder.watch(means.observe, micro_batches(split, rows, tokens), len(rows), asked.progress)
    check_sums(means.sums, encoder, micro_batches(split, rows, tokens), f"the {split.name} split")
    return means.scores(len(rows))
