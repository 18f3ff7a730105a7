"""Heads that share keys and values (grouped-query attention), as units of head scores.

A cache of keys and values is saved only where all heads of a group are constant.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from papa.errors import SpecError


def group_scores(
    scores: Float[np.ndarray, "layers heads"], heads_per_group: int
) -> Float[np.ndarray, "layers groups"]:
    """Return the highest score of each group's heads: a group is kept if one of its heads is.

    Raises:
        SpecError: the heads of a layer are not a whole number of groups.
    """
    layers, heads = scores.shape
    if heads_per_group < 1 or heads % heads_per_group:
        raise SpecError(
            f"heads_per_group is {heads_per_group}, expected a divisor of the {heads} heads of a "
            "layer: num_attention_heads // num_key_value_heads of the model's configuration"
        )
    return scores.reshape(layers, heads // heads_per_group, heads_per_group).max(axis=2)


def scores_by_group(
    scores: Float[np.ndarray, "layers heads"], heads_per_group: int
) -> Float[np.ndarray, "layers heads"]:
    """Return for each head the score of its group, so that an order takes whole groups."""
    return group_scores(scores, heads_per_group).repeat(heads_per_group, axis=1)
