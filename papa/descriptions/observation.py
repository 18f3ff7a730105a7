"""Observations of texts, one at a time, from which descriptions take means over texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from papa.scores.intervals import ratio_with_error, t_quantile
from papa.spec.orders import Head

if TYPE_CHECKING:  # A report needs no encoder.
    from papa.descriptions.treebank import LaidTrees, Tree
    from papa.heads.constants import ConstantMatrices
    from papa.models.encoder import Encoder
    from papa.models.layer import LayerAttention
    from papa.text.batches import MicroBatch

ATTENTIONS = ("input-dependent", "constant", "replaced")


@dataclass(frozen=True)
class Observation:
    """One text in every layer, its real tokens alone, in float32 at least.

    Attributes:
        source: "input-dependent" is A; "constant" is C with rows normalised, on the values and
            states of the model as it is; "replaced" is, in the model after replacement, C of
            constant heads and the attention of the others.
        value, output_maps: V and W_O.
        tree, words: the gold tree, and the number of each token's word in it, -1 for special
            tokens; None of texts without.
        norm_weights: γ of each layer's normalisation after attention; None where there is none.
    """

    source: str
    attention: Float[Tensor, "layers heads n n"]
    value: Float[Tensor, "layers heads n head_width"]
    states: Float[Tensor, "states n width"]
    separators: Bool[Tensor, " n"]
    output_maps: Float[Tensor, "layers heads head_width width"]
    tree: Tree | None = None
    words: Int[Tensor, " n"] | None = None
    norm_weights: Float[Tensor, "layers width"] | None = None

    @property
    def output(self) -> Float[Tensor, "layers heads n head_width"]:
        """The outputs of heads, before the layer's output map."""
        return self.attention @ self.value


@runtime_checkable
class Description(Protocol):
    """A measure of heads or layers, from texts that it observes one at a time."""

    def observe(self, text: Observation) -> None:
        """Take one observation of a text into account."""

    def frame(self) -> pd.DataFrame:
        """Return the table of the description, as ``measure_rows`` writes it."""


@torch.no_grad()
def observe_text(
    encoder: Encoder,
    constants: ConstantMatrices,
    batch: MicroBatch,
    separator: int,
    laid: LaidTrees | None = None,
    heads: Sequence[Head] | None = None,
) -> Iterator[Observation]:
    """Yield three observations of a text: of the model as it is, of its constant matrices, and of
    the model with ``heads`` constant (None: all).

    Args:
        batch: the text alone.
        separator: the id of [SEP].
        laid: the gold trees of all texts, by row.
    """
    # It imports models and transformers, which a report does without.
    from papa.models.layer import Observing, at_least_single

    (row,) = batch.rows.tolist()
    all_heads = tuple(range(encoder.heads))
    is_constant = torch.full((encoder.layers, encoder.heads), heads is None, device=encoder.device)
    for head in heads or ():
        is_constant[head] = True
    constants = constants.to(encoder.device)
    norm_weights = encoder.attention_norm_weights
    attentions: list[Tensor] = []
    values: list[Tensor] = []
    # C of every layer at the text's slots, known after the pass of the model as it is.
    constant_rows: list[Tensor] = []

    def observe_layer(attention: LayerAttention, layer: int) -> Tensor:
        rows = attention.probabilities(all_heads)[0]
        value = at_least_single(attention.value)[0]
        if len(constant_rows) < encoder.layers:
            constant_rows.append(constants.matrices_of(attention, layer, all_heads)[0])
        else:
            rows = torch.where(is_constant[layer, :, None, None], constant_rows[layer], rows)
        attentions.append(rows)
        values.append(value)
        return (rows @ value)[None]

    rules = {
        layer: Observing(observe=observe_layer, layer=layer) for layer in range(encoder.layers)
    }
    for source in ("input-dependent", "replaced"):
        attentions.clear()
        values.clear()
        with encoder.ruled(rules):
            states = torch.stack(encoder.token_states(batch))
        observation = Observation(
            source=source,
            attention=torch.stack(attentions).cpu(),
            value=torch.stack(values).cpu(),
            states=states.cpu(),
            separators=(batch.input_ids == separator).cpu(),
            output_maps=encoder.output_maps.cpu(),
            tree=laid.trees[row] if laid else None,
            words=torch.from_numpy(laid.words[row]) if laid else None,
            norm_weights=None if norm_weights is None else norm_weights.cpu(),
        )
        yield observation
        if source == "input-dependent":
            constant = torch.stack(constant_rows).cpu()
            yield replace(observation, source="constant", attention=constant)


Index: TypeAlias = Int[np.ndarray, " n"]


def measure_rows(
    attention: str,
    measure: str,
    value: Shaped[np.ndarray, "*shape"] | float,
    half_width: Shaped[np.ndarray, "*shape"] | float = np.nan,
    *,
    layer: Index | int | None = None,
    head: Index | int | None = None,
    of: Shaped[np.ndarray, " n"] | str = "",
) -> pd.DataFrame:
    """Return the rows of one measure of an attention, with 95 % intervals.

    Args:
        half_width: half the width of the interval of each value.
        layer, head: of each value; None for a measure without them.
        of: what else a value is of: another head, a relation.
    """
    values = np.ravel(value)
    frame = pd.DataFrame(
        {
            "attention": attention,
            "layer": pd.NA if layer is None else layer,
            "head": pd.NA if head is None else head,
            "of": of,
            "measure": measure,
            "value": values,
            "low": values - np.ravel(half_width),
            "high": values + np.ravel(half_width),
        },
        index=range(len(values)),
    )
    return frame.astype({"layer": "Int64", "head": "Int64"})


class Mean(NamedTuple):
    """The means of a measure over texts and half the widths of their 95 % intervals, nan of one
    text; both of the measure's shape, such as [layers, heads].
    """

    source: str
    measure: str
    value: np.ndarray
    half_width: np.ndarray


class Means:
    """Means over texts: a row for each attention, measure, layer and, where a measure has them,
    head.
    """

    def __init__(self) -> None:
        self._moments: dict[tuple[str, str], Tensor] = {}
        self._counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))

    def add(self, source: str, count: int, sums: Mapping[str, Float[Tensor, "*shape"]]) -> None:
        """Add each measure's sum over a text's ``count`` tokens; 1 for a number of the text."""
        for measure, values in sums.items():
            total = values.double()
            moments = torch.stack([total, total.square(), total * count])
            previous = self._moments.get((source, measure))
            self._moments[source, measure] = moments if previous is None else previous + moments
        self._counts[source] += (1, count, count**2)

    def means(self) -> Iterator[Mean]:
        """Yield the means of every attention and measure."""
        for (source, measure), moments in self._moments.items():
            texts, counts, squared_counts = self._counts[source]
            sums, squares, products = moments.numpy()
            mean, error = ratio_with_error(
                int(texts), sums, squares, products, counts, squared_counts
            )
            yield Mean(source, measure, mean, error * t_quantile(int(texts)))

    def frame(self) -> pd.DataFrame:
        """Return a row for each mean, by layer and head."""
        frames = []
        for mean in self.means():
            indices = [index.ravel() for index in np.indices(mean.value.shape)]
            layer = indices[0] if indices else None
            head = indices[1] if len(indices) > 1 else None
            frames.append(
                measure_rows(
                    mean.source, mean.measure, mean.value, mean.half_width, layer=layer, head=head
                )
            )
        return pd.concat(frames, ignore_index=True)
