"""What descriptions see: one text at a time, of the model as it is, of its constants, and of the
model whose heads are all constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.product import at_slots, normalised_rows
from papa.attention.replacement import check_fits
from papa.corpora.batches import MicroBatch
from papa.corpora.treebank import LaidTrees, Tree
from papa.encoders.dispatch import InputDependentAttention, at_least_single
from papa.encoders.encoder import Encoder

Attention = Literal["input-dependent", "constant", "replaced"]
ATTENTIONS: tuple[Attention, ...] = ("input-dependent", "constant", "replaced")


@dataclass(frozen=True)
class Seen:
    """One text in every layer, its real tokens alone, in float32 at least.

    Attributes:
        of: "input-dependent" is A; "constant" is C with rows normalised, on the values of the
            model as it is; "replaced" is C in the model whose heads are all constant.
        attention: of every head.
        value: V of every head.
        states: the L+1 hidden states; with "constant" those of the model as it is.
        separators: which tokens are separators.
        output_maps: W_O of every head.
        tree: the gold tree, where texts have some; None else.
        words: the number of each token's word in it, -1 for special tokens; None else.
        norm_weights: γ of each layer's normalisation after attention; None where there is none.
    """

    of: Attention
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


class Description(Protocol):
    """Something that is told of heads or layers; it is shown texts and then asked for its table."""

    def see(self, seen: Seen) -> None: ...

    def frame(self) -> pd.DataFrame: ...


@dataclass
class _Kept:
    """The rule of one layer that keeps A or C, and V, of a micro-batch."""

    constant: Float[Tensor, "heads slots slots"]
    replacing: bool
    dependent_heads: None = None
    own: list[Tensor] = field(default_factory=list)

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        value = at_least_single(value)
        chosen = torch.arange(len(self.constant), device=value.device)
        fixed = normalised_rows(
            at_slots(self.constant, chosen, batch.columns), batch.attention_mask
        )
        self.own = [fixed if self.replacing else own.probabilities(), fixed, value]
        return fixed @ value if self.replacing else own.product(value)


@torch.no_grad()
def seen_in(
    encoder: Encoder,
    constants: ConstantMatrices,
    batch: MicroBatch,
    separator: int,
    laid: LaidTrees | None = None,
) -> Iterator[Seen]:
    """Every text of a micro-batch three times, one after the other: as it is, its constants, and
    replaced; memory holds the matrices of one micro-batch.
    """
    check_fits(constants, encoder)
    batch = batch.to(encoder.device)
    matrices, output_maps = constants.matrices.to(encoder.device), encoder.output_maps.cpu()
    norm_weights = encoder.attention_norm_weights
    passes = []
    for replacing in (False, True):
        rules = {layer: _Kept(matrices[layer], replacing) for layer in range(encoder.layers)}
        with encoder.ruled(dict(rules)):
            passes.append((list(rules.values()), torch.stack(encoder.token_states(batch))))
    for number, row in enumerate(batch.rows.tolist()):
        own = batch.inputs_of_tokens == number
        at = batch.column_ids[own]

        def of_text(kept: list[_Kept], which: int, number: int = number, at: Tensor = at) -> Tensor:
            found = torch.stack([rule.own[which][number][:, at] for rule in kept])
            return (found if which == 2 else found[..., at]).cpu()

        kinds: tuple[Attention, ...] = ("input-dependent", "replaced")
        for of, (kept, states) in zip(kinds, passes, strict=True):
            seen = Seen(
                of,
                of_text(kept, 0),
                of_text(kept, 2),
                states[:, own].cpu(),
                (batch.input_ids[own] == separator).cpu(),
                output_maps,
                None if laid is None else laid.trees[row],
                None if laid is None else torch.from_numpy(laid.words[row]),
                None if norm_weights is None else norm_weights.cpu(),
            )
            yield seen
            if of == "input-dependent":
                yield replace(seen, of="constant", attention=of_text(kept, 1))
