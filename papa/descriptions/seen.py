"""What descriptions see: one text at a time, of the model as it is, of its constants, and of the
model after replacement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.product import at_slots, normalised_rows
from papa.spec.orders import Head

if TYPE_CHECKING:  # A report needs no encoder.
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.batches import MicroBatch
    from papa.descriptions.treebank import LaidTrees, Tree
    from papa.encoders.dispatch import InputDependentAttention
    from papa.encoders.encoder import Encoder

Attention = Literal["input-dependent", "constant", "replaced"]
ATTENTIONS: tuple[Attention, ...] = ("input-dependent", "constant", "replaced")


@dataclass(frozen=True)
class Seen:
    """One text in every layer, its real tokens alone, in float32 at least.

    Attributes:
        of: "input-dependent" is A; "constant" is C with rows normalised, on the values and states
            of the model as it is; "replaced" is, in the model after replacement, C of constant
            heads and the attention of the others.
        value, output_maps: V and W_O.
        tree: the gold tree, where texts have some.
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
    """The rule of one layer that keeps the attention and V of one text: C, of which the rows of
    heads that stay input-dependent (``own``) become theirs.
    """

    attention: Float[Tensor, "heads n n"]
    own: Int[Tensor, " own"]
    dependent_heads: None = None

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        from papa.encoders.dispatch import at_least_single

        self.attention[self.own] = own.probabilities()[0, self.own]
        self.value = at_least_single(value)
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
    """A text three times, one after the other: as it is, its constants, and with ``heads`` constant
    (None: all); memory holds all matrices of the batch's one text.
    """
    from papa.attention.replacement import check_fits

    check_fits(constants, encoder)
    (row,), shape = batch.rows.tolist(), constants.matrices.shape[:2]
    batch = batch.to(encoder.device)
    matrices = constants.matrices.to(encoder.device).flatten(0, 1)
    at = at_slots(matrices, torch.arange(len(matrices), device=encoder.device), batch.columns)
    fixed = normalised_rows(at, batch.attention_mask)[0].unflatten(0, shape)
    after = torch.full(shape, heads is not None, device=encoder.device)
    for head in heads or ():
        after[head] = False
    gamma = encoder.attention_norm_weights
    for own in (torch.ones_like(after), after):
        attention = fixed.clone()
        rules = [_Kept(own, at.nonzero().flatten()) for own, at in zip(attention, own, strict=True)]
        with encoder.ruled(dict(enumerate(rules))):
            states = torch.stack(encoder.token_states(batch))
        seen = Seen(
            "input-dependent" if own is not after else "replaced",
            attention.cpu(),
            torch.cat([rule.value for rule in rules]).cpu(),
            states.cpu(),
            (batch.input_ids == separator).cpu(),
            encoder.output_maps.cpu(),
            laid.trees[row] if laid else None,
            torch.from_numpy(laid.words[row]) if laid else None,
            None if gamma is None else gamma.cpu(),
        )
        yield seen
        if own is not after:
            yield replace(seen, of="constant", attention=fixed.cpu())
