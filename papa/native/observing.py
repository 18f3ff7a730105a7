"""What is observed in passes of a native head, and what heads can output in place of it."""

from __future__ import annotations

from papa.errors import NumbersError
from papa.heads.average import AttentionAverager, AttentionSums
from papa.models.encoder import sum_is_finite
from papa.native.passes import NativeHead
from papa.progress import Progress, ignore_progress


def average_by_position(
    native: NativeHead, slots: int, progress: Progress = ignore_progress
) -> AttentionSums:
    """Return sums of A over all texts by position, which merge as those of encoders."""
    layers = len(native.layers.modules)
    averager = AttentionAverager(layers, native.heads_per_layer, slots, native.device)
    native.observe(averager.observe, progress=progress)
    if not sum_is_finite(averager.sums):
        raise NumbersError("the decoder's attention", "look at the size of its weights")
    return averager.result()
