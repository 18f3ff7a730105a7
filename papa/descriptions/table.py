"""Every description by its name, and what they tell of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from papa.descriptions.heads import Mixing, Norms, Outliers, Separators, Similarity
from papa.descriptions.relations import Relations, at_offsets, beside, by_largest, by_tree
from papa.descriptions.rollout import Flow, Rollout
from papa.descriptions.seen import seen_in
from papa.descriptions.treebank import COLUMNS, LaidTrees
from papa.errors import SpecError, meant
from papa.heads.constants import ConstantMatrices
from papa.spec.orders import Head
from papa.text.batches import MicroBatch

if TYPE_CHECKING:
    from papa.models.encoder import Encoder

OF_TREES: dict[str, Callable[[], Any]] = {
    "syntax": partial(Relations, by_largest, at_offsets),
    "trees": partial(Relations, by_tree, beside),
}
"""Those that need gold trees."""
DESCRIPTIONS: dict[str, Callable[[], Any]] = {
    "similarity": Similarity,
    "separators": Separators,
    "norms": Norms,
    "mixing": Mixing,
    "rollout": Rollout,
    "flow": Flow,
    "outliers": Outliers,
    **OF_TREES,
}


def chosen(names: Sequence[str] | None, trees: bool) -> list[str]:
    """The names of descriptions; None takes all that can be told."""
    for name in names or ():
        if name not in DESCRIPTIONS:
            near, every = meant(name, DESCRIPTIONS), ", ".join(DESCRIPTIONS)
            raise SpecError(f"there is no description '{name}'{near}: give one of {every}")
        if name in OF_TREES and not trees:
            raise SpecError(
                f"description '{name}' needs sentences with gold trees: give a CoNLL-U file, or a "
                f"table with the columns {', '.join(COLUMNS)}"
            )
    return [name for name in names or DESCRIPTIONS if trees or name not in OF_TREES]


def described(
    encoder: Encoder,
    constants: ConstantMatrices,
    batches: Iterable[MicroBatch],
    separator: int,
    names: Sequence[str],
    seen_rows: Callable[[int], object] = lambda done: None,
    laid: LaidTrees | None = None,
    heads: Sequence[Head] | None = None,
) -> pd.DataFrame:
    """What descriptions tell of texts, one a batch, as ``papa.describe`` gives it; ``heads`` are
    constant after replacement (None: all).
    """
    found, texts, tokens = {name: DESCRIPTIONS[name]() for name in names}, 0, 0
    for texts, batch in enumerate(batches, 1):
        for seen in seen_in(encoder, constants, batch, separator, laid, heads):
            for description in found.values():
                description.see(seen)
        tokens += len(batch.input_ids)
        seen_rows(texts)
    every = encoder.layers * encoder.heads
    record = {"descriptions": list(names), "texts": texts, "tokens": tokens, "heads": every}
    record |= {"left_out": laid.dropped if laid else 0}
    record |= {"constant_heads": every if heads is None else len(set(heads))}
    return joined({name: one.frame() for name, one in found.items()}, ["description"], [record])


def joined(
    frames: Mapping[Any, pd.DataFrame], names: Sequence[str], records: list[dict[str, Any]]
) -> pd.DataFrame:
    """Frames one below the other, named in first columns; ``attrs["texts"]`` are ``records``."""
    frame = pd.concat(frames, names=[*names, None]).reset_index(names).reset_index(drop=True)
    frame.attrs = {"texts": records}
    return frame
