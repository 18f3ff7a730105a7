"""The average of an encoder's attention by distance, over inputs whose tokens stay in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from papa.ablation.interface import LayerAttention
from papa.ablation.observers import AverageByDistance
from papa.ablation.substitutes import ByDistance
from papa.corpora.batches import MicroBatch, rows_of_like_length
from papa.corpora.split import TokenisedSplit
from papa.encoders.dispatch import InputDependentAttention
from papa.encoders.encoder import Encoder
from papa.encoders.finite import sum_is_finite
from papa.encoders.modernbert import LOCAL
from papa.errors import ArtifactError, NumbersError
from papa.exporting.placement import InputLayout, ordinary_inputs
from papa.progress import Progress, ignore_progress


@torch.inference_mode()
def average_by_distance(
    encoder: Encoder,
    split: TokenisedSplit,
    layout: InputLayout,
    progress: Progress = ignore_progress,
) -> ByDistance:
    """What ``papa.ablated(by="relative")`` learns of the same texts, in passes without padding and
    for every family; tokens stay in their places.
    """
    config: Any = encoder.model.config
    if LOCAL in (getattr(config, "layer_types", None) or ()):
        raise ArtifactError(
            f"in some layers of {config.model_type} a token sees only a window "
            "around it, and constants by distance would look beyond it: leave --by relative out"
        )
    average = AverageByDistance()

    def see(layer: int, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        average.see(_as_called(own, value, batch), layer)
        return own.product(value)

    budget = encoder.tokens_per_batch(None)
    batches = (
        MicroBatch.of(rows, layout.place(**ordinary_inputs(split, split.rows[rows], layout)))
        for rows in rows_of_like_length(split.lengths, split.lengths, budget)
    )
    encoder.watch(see, batches, len(split), progress)
    found = average.result()
    if not sum_is_finite(found.weights):
        raise NumbersError("the encoder's attention", "look at the size of its weights")
    return found


def _as_called(own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> LayerAttention:
    """A layer's attention as ``papa.ablated`` sees it."""
    allowed = batch.attention_mask[:, None, None, :]
    if own.mask is not None:
        allowed = own.mask & allowed
    # Not -inf: a query without a token may have no key.
    bias = torch.zeros_like(allowed, dtype=own.query.dtype).masked_fill(
        ~allowed, torch.finfo(own.query.dtype).min
    )
    columns = batch.columns[None]
    return LayerAttention(
        own.query,
        own.key,
        value,
        bias if own.bias is None else bias + own.bias,
        own.scaling,
        softcap=None,
        dropout=0.0,
        query_slots=columns,
        key_slots=columns,
        first=0,
        causal=False,
    )
