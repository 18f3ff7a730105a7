"""What a decoder's heads look at on average, by position or by distance, in passes of the model on
its ordinary inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from papa.ablation.interface import LayerAttention, attention_modules, routed
from papa.ablation.relative import AverageByDistance, ByDistance
from papa.attention.average import AttentionAverager, AttentionSums
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import SpecialTokens
from papa.encoders.finite import sum_is_finite
from papa.errors import NumbersError
from papa.probes.own import padded_batches
from papa.progress import Progress, ignore_progress

See = Callable[[LayerAttention, int], None]


def average_by_position(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    heads: int,
    progress: Progress = ignore_progress,
) -> AttentionSums:
    """Sums of A over a split, which merge as those of encoders; a layer of a batch at a time."""
    modules = attention_modules(model)
    averager = AttentionAverager(len(modules), heads, split.slots, model.device)

    def see(attention: LayerAttention, layer: int) -> None:
        positions = torch.arange(attention.query.shape[-2], device=model.device)
        probabilities = attention.probabilities(attention.every_head())
        averager.update(layer, probabilities, positions, attention.real_queries)

    _observe(model, split, special_tokens, see, progress)
    sums = averager.result()
    if not sum_is_finite(sums.sums):
        raise NumbersError("the decoder's attention", "look at the size of its weights")
    return sums


def average_by_distance(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    progress: Progress = ignore_progress,
) -> ByDistance:
    """Means of A along diagonals over a split, with the first token apart; no matrix of positions
    is held, whatever S is.
    """
    average = AverageByDistance()
    _observe(model, split, special_tokens, average.see, progress)
    return average.result()


@torch.inference_mode()
def _observe(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    see: See,
    progress: Progress,
) -> None:
    modules = attention_modules(model)

    def rule(attention: LayerAttention, layer: int) -> Tensor:
        see(attention, layer)
        return attention.output(attention.every_head())

    rules = {layer: partial(rule, layer=layer) for layer in range(len(modules))}
    done = 0
    with routed(model, modules, rules):
        for rows, batch in padded_batches(split, special_tokens, model.device):
            model(**batch.inputs)
            done += len(rows)
            progress(done, len(split))
