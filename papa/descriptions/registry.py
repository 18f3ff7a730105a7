"""All descriptions by name, and the table that they make of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from papa.descriptions.heads import Mixing, Norms, Outliers, Separators, Similarity
from papa.descriptions.observation import Description, observe_text
from papa.descriptions.relations import Relations, at_offsets, by_largest, by_tree, is_adjacent
from papa.descriptions.rollout import Flow, Rollout
from papa.descriptions.treebank import COLUMNS, LaidTrees
from papa.errors import SpecError, meant
from papa.heads.constants import ConstantMatrices
from papa.spec.orders import Head
from papa.text.batches import MicroBatch

if TYPE_CHECKING:
    from papa.models.encoder import Encoder

TREE_DESCRIPTIONS: dict[str, Callable[[], Description]] = {
    "syntax": partial(Relations, by_largest, at_offsets),
    "trees": partial(Relations, by_tree, is_adjacent),
}
"""The descriptions that need gold trees."""
DESCRIPTIONS: dict[str, Callable[[], Description]] = {
    "similarity": Similarity,
    "separators": Separators,
    "norms": Norms,
    "mixing": Mixing,
    "rollout": Rollout,
    "flow": Flow,
    "outliers": Outliers,
    **TREE_DESCRIPTIONS,
}


def checked_descriptions(names: Sequence[str] | None, trees: bool) -> list[str]:
    """Return the names of descriptions, after a check; None or no names takes all that texts with
    or without gold ``trees`` allow.
    """
    if isinstance(names, str):
        raise SpecError(f"descriptions is {names!r}, expected a list such as [{names!r}]")
    for name in names or ():
        if name not in DESCRIPTIONS:
            raise SpecError(
                f"there is no description '{name}'{meant(name, DESCRIPTIONS)}: give one of "
                f"{', '.join(DESCRIPTIONS)}"
            )
        if name in TREE_DESCRIPTIONS and not trees:
            raise SpecError(
                f"description '{name}' needs sentences with gold trees: give a CoNLL-U file, or a "
                f"table with the columns {', '.join(COLUMNS)}"
            )
    return [name for name in names or DESCRIPTIONS if trees or name not in TREE_DESCRIPTIONS]


def describe_texts(
    encoder: Encoder,
    constants: ConstantMatrices,
    batches: Iterable[MicroBatch],
    separator: int,
    names: Sequence[str],
    after_text: Callable[[int], object] = lambda done: None,
    laid: LaidTrees | None = None,
    heads: Sequence[Head] | None = None,
) -> pd.DataFrame:
    """Return the table of descriptions of texts, one a batch, as ``papa.describe`` does; ``heads``
    are constant after replacement (None: all).
    """
    descriptions = {name: DESCRIPTIONS[name]() for name in names}
    texts = 0
    tokens = 0
    for batch in batches:
        for observation in observe_text(encoder, constants, batch, separator, laid, heads):
            for description in descriptions.values():
                description.observe(observation)
        texts += 1
        tokens += len(batch.input_ids)
        after_text(texts)
    head_count = encoder.layers * encoder.heads
    record: dict[str, object] = {
        "descriptions": list(names),
        "texts": texts,
        "tokens": tokens,
        "heads": head_count,
        "left_out": laid.dropped if laid else 0,
        "constant_heads": head_count if heads is None else len(set(heads)),
    }
    frames = {name: description.frame() for name, description in descriptions.items()}
    frame = pd.concat(frames, names=["description", None]).reset_index("description")
    frame = frame.reset_index(drop=True)
    frame.attrs = {"texts": [record]}
    return frame
