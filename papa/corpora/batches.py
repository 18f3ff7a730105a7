"""Micro-batches without padding: the real tokens of inputs of like length, side by side at all slots they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.corpora.split import TokenisedSplit


@dataclass(frozen=True)
class MicroBatch:
    """Inputs of one corpus as their real tokens, input by input, and the slots at which any of them has one.

    Whatever a model computes for each token by itself (embeddings, projections, norms, feed-forward maps) it computes
    for one row of all tokens: packed states. Attention needs the inputs separate, with a column for each of m slots,
    in unpacked states; only places that hold a token count there.

    Attributes:
        rows: the inputs' row numbers in their corpus.
        slots: the slots 0..S-1 that columns stand for, ascending.
        lengths: tokens of each input.
        columns: the column of each token, ascending within an input.
        input_ids: token ids.
        token_type_ids: segment ids.
    """

    rows: Int[Tensor, " batch"]
    slots: Int[Tensor, " m"]
    lengths: Int[Tensor, " batch"]
    columns: Int[Tensor, " tokens"]
    input_ids: Int[Tensor, " tokens"]
    token_type_ids: Int[Tensor, " tokens"]

    @classmethod
    def of_tokens(
        cls,
        *,
        rows: Int[Tensor, " batch"],
        lengths: Int[Tensor, " batch"],
        token_slots: Int[Tensor, " tokens"],
        input_ids: Int[Tensor, " tokens"],
        token_type_ids: Int[Tensor, " tokens"],
    ) -> MicroBatch:
        """The batch of these tokens, on the CPU; its columns are the slots that occur."""
        # Used with and without gradients, which tensors made in inference mode could not be.
        with torch.inference_mode(False):
            slots, columns = torch.unique(token_slots.long(), return_inverse=True)
            return cls(
                rows=rows.long().clone(),
                slots=slots,
                lengths=lengths.long().clone(),
                columns=columns,
                input_ids=input_ids.long().clone(),
                token_type_ids=token_type_ids.long().clone(),
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Inputs and columns."""
        return len(self.rows), len(self.slots)

    @property
    def dense(self) -> bool:
        """Whether every input has a token in every column."""
        return len(self.columns) == len(self.rows) * len(self.slots)

    @property
    def token_slots(self) -> Int[Tensor, " tokens"]:
        """The slot of each token."""
        return self.slots[self.columns]

    @cached_property
    def inputs_of_tokens(self) -> Int[Tensor, " tokens"]:
        """The input (0..batch-1) that each token belongs to."""
        with torch.inference_mode(False):
            numbers = torch.arange(len(self.lengths), device=self.lengths.device)
            return torch.repeat_interleave(numbers, self.lengths, output_size=len(self.columns))

    @property
    def positions_in_input(self) -> Int[Tensor, " tokens"]:
        """Each token's number among the tokens of its input, from 0."""
        starts = self.lengths.cumsum(0) - self.lengths
        return torch.arange(len(self.columns), device=starts.device) - starts[self.inputs_of_tokens]

    @cached_property
    def attention_mask(self) -> Bool[Tensor, "batch m"]:
        """Whether an input has a token in a column."""
        with torch.inference_mode(False):
            mask = torch.zeros(self.shape, dtype=torch.bool, device=self.columns.device)
            mask[self.inputs_of_tokens, self.columns] = True
            return mask

    @cached_property
    def _places(self) -> Int[Tensor, " tokens"]:
        """The place (input · m + column) of each token."""
        with torch.inference_mode(False):
            return self.inputs_of_tokens * len(self.slots) + self.columns

    @cached_property
    def _tokens_at_places(self) -> Int[Tensor, " places"]:
        """The token at each place; any other token's number where there is none."""
        with torch.inference_mode(False):
            return (self.attention_mask.flatten().cumsum(0) - 1).clamp(min=0)

    def unpack(self, states: Float[Tensor, "1 tokens width"]) -> Float[Tensor, "batch m width"]:
        """States input by input; places without a token hold some other token's states."""
        flat = states[0] if self.dense else states[0].index_select(0, self._tokens_at_places)
        return flat.unflatten(0, self.shape)

    def pack(self, states: Float[Tensor, "batch m width"]) -> Float[Tensor, "1 tokens width"]:
        """The states of the tokens alone, input by input."""
        flat = states.flatten(0, 1)
        return (flat if self.dense else flat.index_select(0, self._places))[None]

    def to(self, device: torch.device) -> MicroBatch:
        """The batch on a device; itself where it is there."""
        if self.rows.device.type == device.type:
            return self
        moved = {field.name: getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)}
        return replace(self, **moved)


LARGEST_BATCH = 256
"""Inputs in a batch at most, however short they are."""


def micro_batch(split: TokenisedSplit, rows: Sequence[int] | np.ndarray) -> MicroBatch:
    """One batch of the rows with these numbers, in this order.

    Its columns are the slots, ascending, at which any of the rows has a token.
    """
    rows = np.asarray(rows, dtype=np.int64)
    tokens = split.tokens(rows)
    return MicroBatch.of_tokens(
        rows=torch.from_numpy(rows),
        lengths=torch.from_numpy(tokens.lengths),
        token_slots=torch.from_numpy(tokens.slots),
        input_ids=torch.from_numpy(tokens.input_ids),
        token_type_ids=torch.from_numpy(tokens.token_type_ids),
    )


def micro_batches(
    split: TokenisedSplit,
    rows: Sequence[int] | np.ndarray | None,
    batch_tokens: int,
    *,
    largest: int = LARGEST_BATCH,
) -> Iterator[MicroBatch]:
    """The rows in batches, shortest first; the same rows always give the same batches.

    Inputs are sorted by length (two texts: by the first text's, then the second's). A batch takes inputs
    while inputs × slots stays within ``batch_tokens``, at least one and at most ``largest``.

    Args:
        split: a split or a shard of it.
        rows: row numbers in the split; None takes all of ``split``.
        batch_tokens: tokens in a batch, padding included.
        largest: inputs in a batch at most.
    """
    for batch in _batches_of_rows(split, rows, batch_tokens, largest):
        yield micro_batch(split, batch)


def _batches_of_rows(
    split: TokenisedSplit, rows: Sequence[int] | np.ndarray | None, batch_tokens: int, largest: int
) -> Iterator[np.ndarray]:
    rows = split.rows if rows is None else np.asarray(rows, dtype=np.int64)
    local = rows - split.starts[0]
    # A batch spans its longest first text and its longest rest (second text and special tokens).
    first = split.first_lengths[local]
    rest = split.lengths[local] - first
    order = np.lexsort((rows, rest, first))
    start, widest_first, widest_rest = 0, 0, 0
    for position, (a, b) in enumerate(zip(first[order].tolist(), rest[order].tolist(), strict=True)):
        width = max(widest_first, a) + max(widest_rest, b)
        count = position - start + 1
        if count > 1 and (count > largest or count * width > batch_tokens):
            yield rows[order[start:position]]
            start, widest_first, widest_rest = position, 0, 0
        widest_first, widest_rest = max(widest_first, a), max(widest_rest, b)
    if start < len(order):
        yield rows[order[start:]]
