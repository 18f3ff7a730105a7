"""What sets of heads cost together, beside what their heads cost alone: what self-repair hides."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas
from jaxtyping import Float, Int

from papa.heads.substitutes import Substitute
from papa.probes.training import Rows
from papa.progress import Progress, ignore_progress
from papa.ranking.head_scores import HeadScores
from papa.ranking.loss_scores import HeadLoss
from papa.ranking.set_values import effect_of_losses
from papa.scores.p_values import holm
from papa.scores.skewness import p_values_of_skewed
from papa.spec.orders import Head, constant_count

PAIRED_HEADS = 16
"""Of so many heads of least effect all pairs are compared. These heads seem to be free, so a job
that two of them share hides among them; their 120 pairs take as many passes as a study may spend.
"""


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
        if name == "redundancy":
            columns["p"] = _p_values(scores, lost_by_set, whole.lengths)
    return pandas.DataFrame(columns)


def _p_values(
    effects: HeadScores, lost: Float[np.ndarray, "sets texts"], lengths: Int[np.ndarray, " texts"]
) -> Float[np.ndarray, " sets"]:
    """Return the two-sided p value of each effect over texts, which may be skewed: below .05 only
    where its 95 % interval leaves out 0, NaN where no two texts differ.
    """
    if effects.standard_error is None:
        return np.full(len(lost), math.nan)
    error = np.where(effects.standard_error > 0, effects.standard_error, math.nan)
    t = (effects.mean / error)[0]
    return p_values_of_skewed(t, lost - effects.mean[0][:, None] * lengths)


def joint_effects_of_order(
    loss: HeadLoss,
    substitute: Substitute,
    order: Sequence[Head],
    keep: Sequence[float],
    rows: Rows,
    progress: Progress = ignore_progress,
) -> pandas.DataFrame:
    """Return the joint effects of the first heads of an order, and of pairs of its first 16.

    Args:
        loss: Of a native head, on these ``rows``, which should not have decided the order.
        substitute: What heads output instead, on the model's device.
        order: All heads, the first to become constant first.
        keep: Shares of heads that stay input-dependent; those that leave fewer than two constant
            heads have no row.
        rows: The texts.
        progress: Called with (done, total) passes.

    Returns:
        As ``joint_effects_of``: a row for each share, the ``fraction``, and then for every pair,
        with ``p_holm``, its p value corrected by Holm's rule for the number of pairs.
    """
    counts = {fraction: constant_count(fraction, len(order)) for fraction in keep}
    counts = {fraction: count for fraction, count in counts.items() if count > 1}
    # Layer by layer, as a pass reuses what the one before it computed of the layers below.
    pairs = [*combinations(sorted(order[:PAIRED_HEADS]), 2)]
    head_sets = [*(order[:count] for count in counts.values()), *pairs]
    effects = joint_effects_of(loss, substitute, head_sets, rows, progress)
    return effects.assign(
        fraction=[*counts, *[math.nan] * len(pairs)],
        p_holm=[*[math.nan] * len(counts), *holm(effects["p"].tolist()[len(counts) :])],
    )
