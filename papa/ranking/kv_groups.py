"""Groups of heads that share keys and values (grouped-query attention), as units in place of heads.

A cache of keys and values is saved only where all heads of a group are constant.
"""

import numpy as np
import pandas
from jaxtyping import Float

from papa.errors import SpecError

COLUMN = "kv_group"
"""Of a frame of head scores: the number of each head's group in its layer."""


def group_scores(
    scores: Float[np.ndarray, "layers heads"], heads_per_group: int
) -> Float[np.ndarray, "layers groups"]:
    """Return the highest score of each group's heads: a group is kept if one of its heads is."""
    layers, heads = scores.shape
    return scores.reshape(layers, heads // heads_per_group, heads_per_group).max(axis=2)


def with_group_column(frame: pandas.DataFrame, heads_per_group: int) -> pandas.DataFrame:
    """Return a row for each head from a frame whose column ``head`` numbers groups."""
    by_head = frame.loc[frame.index.repeat(heads_per_group)].reset_index(drop=True)
    groups = by_head["head"]
    by_head["head"] = groups * heads_per_group + by_head.index % heads_per_group
    by_head.insert(2, COLUMN, groups)
    return by_head


def group_size_in(scores: object) -> int:
    """Return how many heads each group of a frame has; 1 without a column of groups. Raises a
    SpecError where groups are not of equally many neighbouring heads.
    """
    if not isinstance(scores, pandas.DataFrame) or COLUMN not in scores:
        return 1
    heads = scores["head"].nunique()
    groups = scores[COLUMN].nunique()
    size = heads // max(groups, 1)
    if heads != size * groups or (scores[COLUMN] != scores["head"] // size).any():
        raise SpecError(
            f"the column {COLUMN} numbers {groups} groups of {heads} heads, expected head // n for "
            "groups of n heads: n is num_attention_heads // num_key_value_heads of the model's "
            "configuration"
        )
    return size
