"""What descriptions see of texts, one at a time, and their means over texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit
from torch import Tensor

from papa.scores.intervals import ratio
from papa.spec.orders import Head

if TYPE_CHECKING:  # A report needs no encoder.
    from papa.descriptions.treebank import LaidTrees, Tree
    from papa.heads.constants import ConstantMatrices
    from papa.models.encoder import Encoder
    from papa.models.layer import LayerAttention
    from papa.text.batches import MicroBatch

ATTENTIONS = ("input-dependent", "constant", "replaced")


@dataclass(frozen=True)
class Seen:
    """One text in every layer, its real tokens alone, in float32 at least.

    Attributes:
        of: "input-dependent" is A; "constant" is C with rows normalised, on the values and states
            of the model as it is; "replaced" is, in the model after replacement, C of constant
            heads and the attention of the others.
        value, output_maps: V and W_O.
        tree, words: the gold tree, and the number of each token's word in it, -1 for special
            tokens; None of texts without.
        norm_weights: γ of each layer's normalisation after attention; None where there is none.
    """

    of: str
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
        """What heads put out, before the layer's output map."""
        return self.attention @ self.value


@torch.no_grad()
def seen_in(
    encoder: Encoder,
    constants: ConstantMatrices,
    batch: MicroBatch,
    separator: int,
    laid: LaidTrees | None = None,
    heads: Sequence[Head] | None = None,
) -> Iterator[Seen]:
    """A text three times: as it is, its constants, and with ``heads`` constant (None: all)."""
    from papa.heads.replacement import check_fits
    from papa.models.layer import Watching, at_least_single

    check_fits(constants, encoder)
    (row,), every = batch.rows.tolist(), tuple(range(encoder.heads))
    replaced = torch.full((encoder.layers, encoder.heads), heads is None, device=encoder.device)
    for head in heads or ():
        replaced[head] = True
    held, gamma = constants.to(encoder.device), encoder.attention_norm_weights
    fixed = list[Tensor]()

    def see(attention: LayerAttention, layer: int) -> Tensor:
        rows, value = attention.probabilities(every)[0], at_least_single(attention.value)[0]
        if len(fixed) < encoder.layers:
            fixed.append(held.matrices_of(attention, layer, every)[0])
        else:
            rows = torch.where(replaced[layer, :, None, None], fixed[layer], rows)
        attentions.append(rows)
        values.append(value)
        return (rows @ value)[None]

    rules = {layer: Watching(see=see, layer=layer) for layer in range(encoder.layers)}
    for of in ("input-dependent", "replaced"):
        attentions, values = list[Tensor](), list[Tensor]()
        with encoder.ruled(rules):
            states = torch.stack(encoder.token_states(batch))
        seen = Seen(
            of,
            torch.stack(attentions).cpu(),
            torch.stack(values).cpu(),
            states.cpu(),
            (batch.input_ids == separator).cpu(),
            encoder.output_maps.cpu(),
            laid.trees[row] if laid else None,
            torch.from_numpy(laid.words[row]) if laid else None,
            None if gamma is None else gamma.cpu(),
        )
        yield seen
        if of == "input-dependent":
            yield replace(seen, of="constant", attention=torch.stack(fixed).cpu())


def rows(
    attention: str, measure: str, value: Any, half: Any = np.nan, **place: Any
) -> pd.DataFrame:
    """Rows of one measure, its value with half the width of its 95 % interval: of an attention, a
    ``layer`` and a ``head`` where it has them, and ``of`` what else: another head, a relation.
    """
    value = np.ravel(value)
    columns = {"attention": attention, "layer": pd.NA, "head": pd.NA, "of": "", **place}
    numbers = {"value": value, "low": value - np.ravel(half), "high": value + np.ravel(half)}
    frame = pd.DataFrame({**columns, "measure": measure, **numbers}, index=range(len(value)))
    return frame.astype({"layer": "Int64", "head": "Int64"})


class Means:
    """Means over texts: a row for each attention, measure, layer and, where a measure has them,
    head, with its 95 % interval over texts; nan of one text.
    """

    def __init__(self) -> None:
        self.moments: dict[tuple[str, str], Tensor] = {}
        self.amounts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))

    def add(self, of: str, amount: int, sums: Mapping[str, Float[Tensor, "*shape"]]) -> None:
        """Add each measure's sum over a text's ``amount`` tokens; 1 where it is the text's."""
        for measure, values in sums.items():
            own = values.double()
            moments = torch.stack([own, own.square(), own * amount])
            before = self.moments.get((of, measure))
            self.moments[of, measure] = moments if before is None else before + moments
        self.amounts[of] += (1, amount, amount**2)

    def told(self) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
        """Of what attention which measure: the means, and half the widths of their intervals."""
        for (of, measure), moments in self.moments.items():
            texts, *amounts = self.amounts[of]
            mean, error = ratio(int(texts), *moments.numpy(), *amounts)
            yield of, measure, mean, error * (stdtrit(texts - 1, 0.975) if texts > 1 else np.nan)

    def frame(self) -> pd.DataFrame:
        parts = []
        for of, measure, mean, half in self.told():
            places = (index.ravel() for index in np.indices(mean.shape))
            named = dict(zip(("layer", "head"), places, strict=False))
            parts.append(rows(of, measure, mean, half, **named))
        return pd.concat(parts, ignore_index=True)
