"""What sets of heads cost together, beside what their heads cost alone: what self-repair hides."""

from collections.abc import Sequence

import numpy as np
import pandas

from papa.heads.substitutes import Substitute
from papa.probes.training import Rows
from papa.progress import Progress, ignore_progress
from papa.ranking.loss_scores import HeadLoss
from papa.ranking.set_values import effect_of_losses
from papa.spec.orders import Head, constant_count


def joint_effects_of(
    loss: HeadLoss,
    substitute: Substitute,
    head_sets: Sequence[Sequence[Head]],
    rows: Rows,
    progress: Progress = ignore_progress,
) -> pandas.DataFrame:
    """Return the joint effect of each set of heads beside the sum of the effects of its heads.

    Args:
        loss: Of a native head or a frozen probe, on these ``rows``.
        substitute: What heads output instead, on the model's device.
        head_sets: Sets of heads, by the index of their layer.
        rows: The texts.
        progress: Called with (done, total) passes.

    Returns:
        A row for each set, as ``papa.joint_effects`` describes it.
    """
    single = sorted({head for heads in head_sets for head in heads})
    alone = [[head] for head in single]
    whole, *changed = loss.values_of_sets(substitute, [[], *alone, *head_sets], rows, progress)
    lost = np.stack([values.sums - whole.sums for values in changed])
    lost_alone = dict(zip(single, lost[: len(single)], strict=True))
    lost_jointly = lost[len(single) :]
    lost_in_sum = np.stack(
        [np.sum([lost_alone[head] for head in heads], axis=0) for heads in head_sets]
    )
    columns: dict[str, object] = {
        "heads": [tuple(heads) for heads in head_sets],
        "count": [len(heads) for heads in head_sets],
    }
    # Differences are of the same texts, so their interval is narrower than those of both terms.
    terms = {
        "joint": lost_jointly,
        "single_sum": lost_in_sum,
        "redundancy": lost_jointly - lost_in_sum,
    }
    for name, lost_by_set in terms.items():
        size = (1, len(head_sets))
        scores = effect_of_losses(lost_by_set, whole.lengths, size, by_text=loss.by_text)
        low, high = scores.interval
        columns[name] = scores.mean[0]
        columns[f"{name}_low"] = low[0]
        columns[f"{name}_high"] = high[0]
    return pandas.DataFrame(columns)


def joint_effects_of_order(
    loss: HeadLoss,
    substitute: Substitute,
    order: Sequence[Head],
    keep: Sequence[float],
    rows: Rows,
    progress: Progress = ignore_progress,
) -> pandas.DataFrame:
    """Return the joint effects of the first heads of an order.

    Args:
        loss: Of a native head, on these ``rows``, which should not have decided the order.
        substitute: What heads output instead, on the model's device.
        order: All heads, the first to become constant first.
        keep: Shares of heads that stay input-dependent; those that leave fewer than two constant
            heads have no row.
        rows: The texts.
        progress: Called with (done, total) passes.

    Returns:
        As ``joint_effects_of``, with the share as ``fraction``, and without the heads.
    """
    counts = {fraction: constant_count(fraction, len(order)) for fraction in keep}
    counts = {fraction: count for fraction, count in counts.items() if count > 1}
    head_sets = [order[:count] for count in counts.values()]
    effects = joint_effects_of(loss, substitute, head_sets, rows, progress)
    return effects.drop(columns="heads").assign(fraction=[*counts])
