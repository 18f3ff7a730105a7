"""Features of one batch as the encoder has just computed them, gradients included."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from papa.corpora.batches import CompactBatch
from papa.corpora.split import TokenizedSplit
from papa.corpora.tokens import IGNORED
from papa.probes.packed import PackedFeatures, pack_states


def live_features(
    token_states: Sequence[Float[Tensor, "tokens width"]], split: TokenizedSplit, batch: CompactBatch
) -> PackedFeatures:
    """Pack the tokens of a batch that a probe sees; row i of the result is the batch's row i.

    Args:
        token_states: the L+1 layers of the batch's real tokens, embeddings first.
        split: where the batch's labels are.
        batch: on the CPU.
    """
    device = token_states[0].device
    local = batch.rows.numpy() - split.rows[0]
    rows, slots = batch.inputs_of_tokens, batch.token_slots
    kept, labels = None, torch.from_numpy(split.labels)
    if split.label_per_token:
        starts = torch.from_numpy(split.offsets[local])
        labels = labels[starts[rows] + batch.positions_in_input]
        kept = labels != IGNORED
        rows, slots, labels = rows[kept], slots[kept], labels[kept]
    else:
        labels = labels[torch.from_numpy(local)]
    counts = torch.bincount(rows, minlength=len(batch.rows))
    return PackedFeatures(
        values=pack_states(token_states, None if kept is None else kept.to(device)),
        offsets=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        slots=slots.to(device),
        labels=labels.to(device),
        token_labels=split.label_per_token,
    )
