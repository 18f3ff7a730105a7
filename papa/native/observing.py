"""What is observed in passes of a native head, and what heads can output in place of it."""

import numpy as np
import torch
from jaxtyping import Int

from papa.errors import NumbersError
from papa.heads.average import AttentionAverager
from papa.heads.constants import ConstantMatrices
from papa.heads.substitutes import Substitute
from papa.heads.sums import AttentionSums
from papa.models.encoder import sum_is_finite
from papa.native.passes import NativeHead
from papa.progress import Progress, ignore_progress


def average_by_position(
    native: NativeHead, slots: int, progress: Progress = ignore_progress
) -> AttentionSums:
    """Return sums of A over all texts by position, which merge with those over other texts of the
    same number of slots.
    """
    layers = len(native.layers.modules)
    averager = AttentionAverager(
        layers, native.heads_per_layer, slots, native.device, by_position=True
    )
    native.observe(averager.observe, progress=progress)
    if not sum_is_finite(averager.sums):
        raise NumbersError("the model's attention", "look at the size of its weights")
    return averager.result()


def unseen_by_position(
    substitute: Substitute | None, lengths: Int[np.ndarray, " texts"]
) -> float | None:
    """Return the share of entries of C that texts of these lengths read and the average never
    observed; None for substitutes without an average.
    """
    if not isinstance(substitute, ConstantMatrices):
        return None
    order = torch.arange(substitute.slots)
    if substitute.has_end_slot:
        order = order.roll(1)
    unseen = ~substitute.seen[order][:, order]
    # Entry n is the number of unseen entries that a text of n + 1 tokens reads.
    by_length = unseen.long().cumsum(dim=0).cumsum(dim=1).diagonal().numpy()
    return float(by_length[lengths - 1].sum() / np.square(lengths.astype(np.int64)).sum())
