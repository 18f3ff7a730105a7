"""Features of one batch as the encoder has just computed them, gradients included."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from papa.corpora.batches import CompactBatch
from papa.corpora.split import TokenizedSplit
from papa.corpora.tokens import IGNORED
from papa.probes.packed import PackedFeatures, pack_batch


def live_features(
    hidden_states: Sequence[Float[Tensor, "batch m width"]], split: TokenizedSplit, batch: CompactBatch
) -> PackedFeatures:
    """Pack the tokens of a batch that a probe sees; row i of the result is the batch's row i.

    Args:
        hidden_states: the L+1 layers, embeddings first.
        split: where the batch's labels are.
        batch: on the CPU.
    """
    device = hidden_states[0].device
    local = batch.rows.numpy() - split.rows[0]
    kept = batch.attention_mask
    if split.label_per_token:
        tokens = torch.from_numpy(split.offsets[local])[:, None] + kept.cumsum(dim=1) - 1
        labels = torch.from_numpy(split.labels)[tokens]
        kept = kept & (labels != IGNORED)
        labels = labels[kept]
    else:
        labels = torch.from_numpy(split.labels[local])
    counts = kept.sum(dim=1)
    return PackedFeatures(
        values=pack_batch(hidden_states, kept.to(device)),
        offsets=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        slots=batch.slots.expand_as(kept)[kept].to(device),
        labels=labels.to(device),
        token_labels=split.label_per_token,
    )
