"""Scores that are means over the rows of attention matrices: all in one pass over the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.heads.average import check_sums
from papa.heads.replacement import check_fits
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
    puts out nothing. An input has one number, in its first row.
    """
    own, apart = (
        torch.where(rows.real[:, None, :, None], mixed @ rows.value @ rows.output_map, 0)
        for mixed in (rows.attention, rows.attention - rows.constant)
    )
    norm = own.norm(dim=(-1, -2))
    relative = torch.where(norm > 0, apart.norm(dim=(-1, -2)) / norm, 0)
    first = rows.real & (rows.real.cumsum(-1) == 1)
    return relative[..., None].expand(own.shape[:-1]), first


@torch.inference_mode()
def streamed(asked: Asked, methods: Mapping[str, OfRows]) -> dict[str, HeadScores]:
    """The mean over rows of each method, with its standard error over inputs (of a ratio)."""
    encoder, split, rows = asked.encoder, asked.corpus.split("train"), asked.rows
    check_fits(asked.constants, encoder)
    constants = asked.constants.to(encoder.device)
    # W_O = R·Q with orthonormal rows in Q, which change no norm.
    output_maps = torch.linalg.qr(encoder.output_maps.float().mT).R.mT
    # Σs, Σs², Σsn, Σn and Σn² over inputs: s is the sum over an input's rows, n their number.
    size = encoder.layers, encoder.heads, len(methods), 5
    sums = torch.zeros(size, dtype=torch.float64, device=encoder.device)

    def see(attention: LayerAttention, layer: int) -> Tensor:
        batch, every = attention.batch, attention.every
        assert batch is not None
        probabilities = attention.probabilities(every)
        value, ends = attention.value.to(probabilities.dtype), batch.attention_mask.clone()
        last = batch.input_ids[batch.slot_ids == split.slots - 1]
        ends[batch.inputs_of_tokens, batch.column_ids] = torch.isin(batch.input_ids, last)
        constant = constants.matrices_of(attention, layer, every)
        of = probabilities, constant, value, output_maps[layer], batch.attention_mask, ends
        for number, of_rows in enumerate(methods.values()):
            values, counted = of_rows(Rows(*of))
            s = torch.where(counted[:, None], values, 0).double().sum(-1)
            n = counted.sum(-1, keepdim=True).double().expand_as(s)
            sums[layer, :, number] += torch.stack([s, s * s, s * n, n, n * n], dim=-1).sum(0)
        return torch.matmul(probabilities, value)

    tokens = encoder.tokens_per_batch(asked.execution.batch_tokens)
    encoder.watch(see, micro_batches(split, rows, tokens), len(rows), asked.progress)
    check_sums(sums, encoder, micro_batches(split, rows, tokens), f"the {split.name} split")
    mean, error = ratio(len(rows), *np.moveaxis(sums.cpu().numpy(), -1, 0))
    errors = [*np.moveaxis(error, -1, 0)] if len(rows) > 1 else [None] * len(methods)
    every = zip(methods, np.moveaxis(mean, -1, 0), errors, strict=True)
    return {name: HeadScores(own[None], error, len(rows), 1) for name, own, error in every}
