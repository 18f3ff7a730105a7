"""Observations of random text, and values of a frame of descriptions."""

from collections.abc import Sequence

import torch
from pandas import DataFrame, Series

from papa.descriptions.observation import Observation
from papa.descriptions.treebank import Tree


def observation_of(
    attention_kind: str,
    attention: torch.Tensor,
    tree: Tree | None = None,
    words: Sequence[int] | None = None,
) -> Observation:
    """A text of random values and states, whose last token is a separator."""
    layers, heads, n, _ = attention.shape
    generator = torch.Generator().manual_seed(n)
    shapes = (layers, heads, n, 3), (layers + 1, n, 6), (layers, heads, 3, 6)
    value, states, maps = (torch.randn(*shape, generator=generator) for shape in shapes)
    separators = torch.arange(n) == n - 1
    numbers = None if words is None else torch.tensor(words)
    return Observation(attention_kind, attention, value, states, separators, maps, tree, numbers)


def values(frame: DataFrame, measure: str, attention_kind: str = "input-dependent") -> Series:
    """What a description tells of a measure of one attention, by layer and what else it has."""
    selected = frame[(frame["measure"] == measure) & (frame["attention"] == attention_kind)]
    index = [name for name in ("layer", "head") if selected[name].notna().any()]
    index += ["of"] if selected["of"].ne("").any() else []
    return selected.set_index(index)["value"]
