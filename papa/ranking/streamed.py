"""Head scores that are means over rows of attention matrices; one pass computes all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.errors import SpecError
from papa.heads.average import check_sums
from papa.heads.substitutes import Weights
from papa.models.layer import LayerAttention
from papa.ranking.head_scores import HeadScores
from papa.ranking.loss_scores import ScoringRequest
from papa.scores.intervals import ratio_with_error
from papa.text.batches import micro_batches


class AttentionRows(NamedTuple):
    """One layer's attention over one batch.

    Attributes:
        attention: A.
        constant: C with the rows that replace those of A.
        value: V.
        output_map: A map for each head that gives A·V the same norms as W_O does.
        real: Which slots of an input hold a token.
        separators: Which of these tokens are separators: equal to the last token of a text.
        has_sink: Whether a learned sink takes the rest of each row of A, which sums to less than 1.
    """

    attention: Float[Tensor, "batch heads m m"]
    constant: Float[Tensor, "batch heads m m"]
    value: Float[Tensor, "batch heads m head_width"]
    output_map: Float[Tensor, "heads head_width head_width"]
    real: Bool[Tensor, "batch m"]
    separators: Bool[Tensor, "batch m"]
    has_sink: bool = False


RowScores = tuple[Float[Tensor, "batch heads m"], Bool[Tensor, "batch m"]]
"""A number for each row of A, and which rows count in a head's mean."""
ScoreRows = Callable[[AttentionRows], RowScores]


def confidence(rows: AttentionRows) -> RowScores:
    """Return the largest weight of each row (Voita et al., 2019, Section 4). Rows of separators,
    and weights on separators, do not count.
    """
    weights = rows.attention.masked_fill(rows.separators[:, None, None, :], 0)
    return weights.amax(-1), rows.real & ~rows.separators


def variance(rows: AttentionRows) -> RowScores:
    """Compute -Σ_j A_ij (μ_i - j)² with μ_i = Σ_j j A_ij (Kim et al., Findings of ACL 2021), where
    j counts the tokens of the input. It is 0 for a head that attends to one token, and the lower,
    the wider a head attends.
    """
    positions = (rows.real.cumsum(-1) - 1).to(rows.attention)[:, None, None]
    mean = (rows.attention * positions).sum(-1, keepdim=True)
    return -(rows.attention * (mean - positions).square()).sum(-1), rows.real


def distance(rows: AttentionRows) -> RowScores:
    """Return the Jensen-Shannon divergence of each row of A from that of C, in nats: 0 to log 2."""
    attention = rows.attention.double()
    constant = rows.constant.double()
    middle = (attention + constant) / 2
    divergences = [
        torch.xlogy(weights, weights) - torch.xlogy(weights, middle)
        for weights in (attention, constant)
    ]
    return torch.stack(divergences).sum((0, -1)) / 2, rows.real


def output_distance(rows: AttentionRows) -> RowScores:
    """Compute ‖(A - C)·V·W_O‖ / ‖A·V·W_O‖, with norms over all tokens of an input and the width;
    0 for a head whose output is 0. An input has one number, which counts once, by its first row.
    """
    output, difference = (
        torch.where(rows.real[:, None, :, None], weights @ rows.value @ rows.output_map, 0)
        for weights in (rows.attention, rows.attention - rows.constant)
    )
    norm = output.norm(dim=(-1, -2))
    relative = torch.where(norm > 0, difference.norm(dim=(-1, -2)) / norm, 0)
    first = rows.real & (rows.real.cumsum(-1) == 1)
    return relative[..., None].expand(output.shape[:-1]), first


def first_token_attention(rows: AttentionRows) -> RowScores:
    """Compute -A[i, first], the attention on the first token. It is negated, because heads that
    attend mostly there cost least to replace (Sandoval-Segura et al., 2025). The first token's own
    row does not count.
    """
    first = rows.real & (rows.real.cumsum(-1) == 1)
    weights = rows.attention.masked_fill(~first[:, None, None, :], 0).sum(-1)
    return -weights, rows.real & ~first


def sink_share(rows: AttentionRows) -> RowScores:
    """Compute Σ_j A_ij - 1, the share of attention that a learned sink takes (gpt-oss). It is
    negated, because heads with a large share there are expected to cost least to replace.
    """
    if not rows.has_sink:
        raise SpecError(
            "sink_share is the share of a learned sink, which this model's attention does not "
            "have: take first_token_attention"
        )
    return rows.attention.sum(-1) - 1, rows.real


def output_norm(rows: AttentionRows) -> RowScores:
    """Compute ‖A·V‖ of each token: the norm of what the head outputs, before W_O
    (Sandoval-Segura et al., 2025).
    """
    return (rows.attention @ rows.value).norm(dim=-1), rows.real


@dataclass
class RowMeans:
    """Mean row scores of every head, added up as ``observe`` is called with layer after layer.

    Attributes:
        methods: The methods, by name.
        constants: What heads output instead, on the model's device; None if no method reads C.
        size: (layers, units in each); a unit is a head, or ``heads_per_unit`` of them.
        device: Where the sums are.
        output_maps: From ``norm_preserving_maps``; None if no method reads them.
        heads_per_unit: How many neighbouring heads share one score, the mean of theirs.
        sums: Σs, Σs², Σsn, Σn and Σn² over inputs, where s is the sum of the scores of an input's
            rows, and n the number of these rows.
    """

    methods: Mapping[str, ScoreRows]
    constants: Weights | None
    size: tuple[int, int]
    device: torch.device
    output_maps: Float[Tensor, "layers heads head_width head_width"] | None = None
    heads_per_unit: int = 1
    sums: Float[Tensor, "layers units methods 5"] = field(init=False)

    def __post_init__(self) -> None:
        shape = (*self.size, len(self.methods), 5)
        self.sums = torch.zeros(shape, dtype=torch.float64, device=self.device)

    def observe(
        self, attention: LayerAttention, layer: int, separators: Bool[Tensor, "batch m"]
    ) -> Tensor:
        """Add the rows of one layer's call; return what its heads output."""
        heads = attention.all_heads
        probabilities = attention.probabilities(heads)
        value = attention.value.to(probabilities.dtype)
        # Without constants no method reads C: any matrices of this shape will do.
        constant = probabilities
        if self.constants is not None:
            constant = self.constants.matrices_of(attention, layer, heads)
        rows = AttentionRows(
            probabilities,
            constant,
            value,
            self.output_maps[layer] if self.output_maps is not None else value.new_zeros(0),
            attention.slots.real,
            separators,
            attention.sinks is not None,
        )
        for index, score_rows in enumerate(self.methods.values()):
            by_head, is_counted = score_rows(rows)
            by_unit = by_head.unflatten(1, (-1, self.heads_per_unit)).mean(2)
            sums = torch.where(is_counted[:, None], by_unit, 0).double().sum(-1)
            counts = is_counted.sum(-1, keepdim=True).double().expand_as(sums)
            moments = torch.stack(
                [sums, sums * sums, sums * counts, counts, counts * counts], dim=-1
            ).sum(0)
            self.sums[layer, :, index] += moments.to(self.device)
        return torch.matmul(probabilities, value)

    def scores(self, inputs: int) -> dict[str, HeadScores]:
        """Return the mean Σs / Σn of each method, with the standard error of this ratio over
        inputs.
        """
        moments = np.moveaxis(self.sums.cpu().numpy(), -1, 0)
        means, errors = ratio_with_error(inputs, *moments)
        scores: dict[str, HeadScores] = {}
        for index, method in enumerate(self.methods):
            error = errors[..., index] if inputs > 1 else None
            scores[method] = HeadScores(
                means[..., index][None], error, samples=inputs, evaluations=1
            )
        return scores


def norm_preserving_maps(
    weights: Float[Tensor, "layers heads head_width width"],
) -> Float[Tensor, "layers heads head_width head_width"]:
    """Return R of W_O = R·Q for each head, where the rows of Q are orthonormal: A·V·R has the same
    norms as A·V·W_O, and only the width of a head.
    """
    return torch.linalg.qr(weights.float().mT).R.mT


@torch.inference_mode()
def score_by_row_means(
    request: ScoringRequest, methods: Mapping[str, ScoreRows]
) -> dict[str, HeadScores]:
    """Score all heads of a plain encoder by all methods in one pass over its training rows."""
    encoder = request.encoder
    split = request.corpus.split("train")
    rows = request.rows

    means = RowMeans(
        methods,
        request.constants.to(encoder.device),
        (encoder.layers, encoder.heads),
        encoder.device,
        norm_preserving_maps(encoder.output_maps),
    )

    def observe(attention: LayerAttention, layer: int) -> Tensor:
        batch = attention.batch
        assert batch is not None
        is_separator = batch.attention_mask.clone()
        last = batch.input_ids[batch.slot_ids == split.slots - 1]
        is_separator[batch.inputs_of_tokens, batch.column_ids] = torch.isin(batch.input_ids, last)
        return means.observe(attention, layer, is_separator)

    tokens = encoder.tokens_per_batch(request.execution.batch_tokens)
    encoder.observe(observe, micro_batches(split, rows, tokens), len(rows), request.progress)
    check_sums(means.sums, encoder, micro_batches(split, rows, tokens), f"the {split.name} split")
    return means.scores(len(rows))
