"""Micro-batches without padding: real tokens of inputs of like length, at all slots they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.text.corpus import TokenisedSplit
from papa.text.layout import PackedTokens, positions_in_rows


@dataclass(frozen=True)
class MicroBatch:
    """Inputs as their real tokens, input by input, and the slots at which any of them has one.

    Packed states are one row of all tokens; unpacked ones have a row for each input, with a column
    for each of m slots, where only places that hold a token count.

    Attributes:
        rows: the inputs' row numbers where they come from.
        columns: the slot 0..S-1 of each column, ascending.
        column_ids: the column of each token, ascending within an input.
        inputs_of_tokens: the input (0..batch-1) that each token belongs to.
        positions_in_input: each token's number among the tokens of its input, from 0.
    """

    rows: Int[Tensor, " batch"]
    columns: Int[Tensor, " m"]
    column_ids: Int[Tensor, " tokens"]
    inputs_of_tokens: Int[Tensor, " tokens"]
    positions_in_input: Int[Tensor, " tokens"]
    input_ids: Int[Tensor, " tokens"]
    token_type_ids: Int[Tensor, " tokens"]

    @classmethod
    @torch.inference_mode(False)  # Used with gradients too, which tensors made there cannot be.
    def of(cls, rows: Int[np.ndarray, " batch"], tokens: PackedTokens) -> MicroBatch:
        """The batch of these tokens, on the CPU; its columns are the slots that occur."""
        columns, column_ids = np.unique(tokens.slot_ids, return_inverse=True)
        inputs = np.repeat(np.arange(len(rows)), tokens.lengths)
        places = (columns, column_ids, inputs, positions_in_rows(tokens.lengths))
        parts = (rows, *places, tokens.input_ids, tokens.token_type_ids)
        # Copies: tokens may lie in a mapped file, which cannot be written to.
        return cls(*(torch.from_numpy(part.astype(np.int64)) for part in parts))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def dense(self) -> bool:
        """Whether every input has a token in every column."""
        return len(self.column_ids) == len(self.rows) * len(self.columns)

    @property
    def slot_ids(self) -> Int[Tensor, " tokens"]:
        return self.columns[self.column_ids]

    @cached_property
    @torch.inference_mode(False)
    def attention_mask(self) -> Bool[Tensor, "batch m"]:
        """Whether an input has a token in a column."""
        mask = torch.zeros(self.shape, dtype=torch.bool, device=self.rows.device)
        mask[self.inputs_of_tokens, self.column_ids] = True
        return mask

    @cached_property
    @torch.inference_mode(False)
    def _tokens_of_places(self) -> Int[Tensor, " places"]:
        """The token at each place, input by input; any token where there is none."""
        return (self.attention_mask.flatten().cumsum(0) - 1).clamp(min=0)

    def unpack(
        self, states: Float[Tensor, "1 *heads tokens width"]
    ) -> Float[Tensor, "batch *heads m width"]:
        """States input by input; places without a token hold some other token's states."""
        tokens = states[0].movedim(-2, 0).index_select(0, self._tokens_of_places)
        return tokens.unflatten(0, self.shape).movedim(1, -2)

    def pack(
        self, states: Float[Tensor, "batch *heads m width"]
    ) -> Float[Tensor, "1 *heads tokens width"]:
        """The states of the tokens alone, input by input."""
        kept = self.inputs_of_tokens * len(self.columns) + self.column_ids
        return states.movedim(-2, 1).flatten(0, 1).index_select(0, kept).movedim(0, -2)[None]

    def to(self, device: torch.device) -> MicroBatch:
        """The batch on a device; itself where it is there."""
        if self.rows.device.type == device.type:
            return self
        moved = (getattr(self, own.name).to(device, non_blocking=True) for own in fields(self))
        return MicroBatch(*moved)


LARGEST_BATCH = 256
"""Inputs in a batch at most, however short they are."""


def micro_batch(
    split: TokenisedSplit, rows: Sequence[int] | Int[np.ndarray, " batch"]
) -> MicroBatch:
    """One batch of the rows with these numbers, in this order."""
    return MicroBatch.of(np.asarray(rows, dtype=np.int64), split.tokens(rows))


def micro_batches(
    split: TokenisedSplit, rows: Sequence[int] | Int[np.ndarray, " n"] | None, batch_tokens: int
) -> Iterator[MicroBatch]:
    """The rows of these numbers, or all, in batches of so many tokens, padding included."""
    rows = split.rows if rows is None else np.sort(np.asarray(rows, dtype=np.int64))
    index = split.index_of(rows)
    for group in rows_of_like_length(
        split.first_lengths[index], split.lengths[index], batch_tokens
    ):
        yield micro_batch(split, rows[group])


def rows_of_like_length(
    first_lengths: Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " rows"], batch_tokens: int
) -> Iterator[Int[np.ndarray, " batch"]]:
    """Row numbers 0..rows-1 in batches of like length, of two texts by the first, then the second:
    rows × columns stays within ``batch_tokens``.
    """
    # The columns of a batch hold its longest first text and its longest rest (second text and
    # special tokens).
    rest_lengths = lengths - first_lengths
    order = np.lexsort((rest_lengths, first_lengths))
    start, longest_first, longest_rest = 0, 0, 0
    for position, (first, rest) in enumerate(
        zip(first_lengths[order].tolist(), rest_lengths[order].tolist(), strict=True)
    ):
        columns = max(longest_first, first) + max(longest_rest, rest)
        count = position - start + 1
        if count > 1 and (count > LARGEST_BATCH or count * columns > batch_tokens):
            yield order[start:position]
            start, longest_first, longest_rest = position, 0, 0
        longest_first, longest_rest = max(longest_first, first), max(longest_rest, rest)
    if start < len(order):
        yield order[start:]
