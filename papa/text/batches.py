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
    for each of m slots, where only positions that hold a token count.

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
    def from_tokens(cls, rows: Int[np.ndarray, " batch"], tokens: PackedTokens) -> MicroBatch:
        """Return the batch of these tokens, on the CPU; its columns are the slots that occur."""

        def tensor(values: np.ndarray) -> Tensor:
            # A copy: tokens may lie in a memory-mapped file, which cannot be written to.
            return torch.from_numpy(values.astype(np.int64))

        columns, column_ids = np.unique(tokens.slot_ids, return_inverse=True)
        return cls(
            rows=tensor(rows),
            columns=tensor(columns),
            column_ids=tensor(column_ids),
            inputs_of_tokens=tensor(np.repeat(np.arange(len(rows)), tokens.lengths)),
            positions_in_input=tensor(positions_in_rows(tokens.lengths)),
            input_ids=tensor(tokens.input_ids),
            token_type_ids=tensor(tokens.token_type_ids),
        )

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
    def _token_at_position(self) -> Int[Tensor, " batch_times_m"]:
        """The token in each column, input by input; an arbitrary token where there is none."""
        return (self.attention_mask.flatten().cumsum(0) - 1).clamp(min=0)

    def unpack(
        self, states: Float[Tensor, "1 *heads tokens width"]
    ) -> Float[Tensor, "batch *heads m width"]:
        """Return states input by input; positions without a token hold another token's states."""
        tokens = states[0].movedim(-2, 0).index_select(0, self._token_at_position)
        return tokens.unflatten(0, self.shape).movedim(1, -2)

    def pack(
        self, states: Float[Tensor, "batch *heads m width"]
    ) -> Float[Tensor, "1 *heads tokens width"]:
        """Return the states of the tokens alone, input by input."""
        token_positions = self.inputs_of_tokens * len(self.columns) + self.column_ids
        positions = states.movedim(-2, 1).flatten(0, 1)
        return positions.index_select(0, token_positions).movedim(0, -2)[None]

    def to(self, device: torch.device) -> MicroBatch:
        """Return the batch on a device: itself if it is there already."""
        if self.rows.device.type == device.type:
            return self
        tensors = (getattr(self, field.name) for field in fields(self))
        return MicroBatch(*(tensor.to(device, non_blocking=True) for tensor in tensors))


LARGEST_BATCH = 256
"""The most inputs of a batch, however short they are."""


def micro_batch(
    split: TokenisedSplit, rows: Sequence[int] | Int[np.ndarray, " batch"]
) -> MicroBatch:
    """Return one batch of the rows with these numbers, in this order."""
    return MicroBatch.from_tokens(np.asarray(rows, dtype=np.int64), split.tokens(rows))


def micro_batches(
    split: TokenisedSplit, rows: Sequence[int] | Int[np.ndarray, " n"] | None, batch_tokens: int
) -> Iterator[MicroBatch]:
    """Yield the rows with these numbers, or all, in batches of ``batch_tokens``, with padding."""
    rows = split.rows if rows is None else np.sort(np.asarray(rows, dtype=np.int64))
    index = split.index_of(rows)
    for group in rows_of_like_length(
        split.first_lengths[index], split.lengths[index], batch_tokens
    ):
        yield micro_batch(split, rows[group])


def rows_of_like_length(
    first_lengths: Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " rows"], batch_tokens: int
) -> Iterator[Int[np.ndarray, " batch"]]:
    """Yield row numbers 0..rows-1 in batches of similar length, in which rows × columns stays
    within ``batch_tokens``. Pairs of texts are sorted by the first text, then by the second.
    """
    # A first text starts at slot 0 and a second one in the middle, so a batch has columns for its
    # longest first text and for its longest rest (second text and special tokens).
    rest_lengths = lengths - first_lengths
    order = np.lexsort((rest_lengths, first_lengths))
    start = 0
    longest_first = 0
    longest_rest = 0
    for position, (first, rest) in enumerate(
        zip(first_lengths[order].tolist(), rest_lengths[order].tolist(), strict=True)
    ):
        columns = max(longest_first, first) + max(longest_rest, rest)
        count = position - start + 1
        if count > 1 and (count > LARGEST_BATCH or count * columns > batch_tokens):
            yield order[start:position]
            start = position
            longest_first = 0
            longest_rest = 0
        longest_first = max(longest_first, first)
        longest_rest = max(longest_rest, rest)
    if start < len(order):
        yield order[start:]
