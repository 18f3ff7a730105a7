"""What a description sees, made by hand."""

from __future__ import annotations

from typing import Any

import torch
from pandas import DataFrame, Series
from torch import Tensor

from papa.descriptions.seen import Seen
from papa.descriptions.treebank import Tree


def seen(of: str, attention: Tensor, tree: Tree | None = None, words: Any = None) -> Seen:
    """A text of random values and states, whose last token is a separator."""
    layers, heads, n, _ = attention.shape
    generator = torch.Generator().manual_seed(n)
    value, states, maps = (
        torch.randn(*shape, generator=generator)
        for shape in ((layers, heads, n, 3), (layers + 1, n, 6), (layers, heads, 3, 6))
    )
    separators = torch.arange(n) == n - 1
    numbers = None if words is None else torch.tensor(words)
    return Seen(of, attention, value, states, separators, maps, tree, numbers)


def values(frame: DataFrame, measure: str, of: str = "input-dependent") -> Series:
    """What a description tells of a measure of one attention, by layer and what else it has."""
    own = frame[(frame["measure"] == measure) & (frame["attention"] == of)]
    index = [name for name in ("layer", "head") if own[name].notna().any()]
    index += ["of"] if own["of"].ne("").any() else []
    return own.set_index(index)["value"]
