"""Micro-batches without padding: real tokens of inputs of like length, at all slots they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.corpora.ragged import PackedTokens, positions_in_rows
from papa.corpora.split import TokenisedSplit


@dataclass(frozen=True)
class MicroBatch:
    """Inputs as their real tokens, input by input, and the slots at which any of them has one.

    Whatever a model computes for each token by itself (embeddings, projections, norms, feed-forward
    maps) it computes for one row of all tokens: packed states. Attention needs the inputs separate,
    with a column for each of m slots, in unpacked states; only places that hold a token count
    there.

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
    def of(cls, rows: Int[np.ndarray, " batch"], tokens: PackedTokens) -> MicroBatch:
        """The batch of these tokens, on the CPU; its columns are the slots that occur."""

        def tensor(values: Int[np.ndarray, " n"]) -> Int[Tensor, " n"]:
            # A copy: tokens may lie in a mapped file, which cannot be written to.
            return torch.from_numpy(values.astype(np.int64))

        columns, column_ids = np.unique(tokens.slot_ids, return_inverse=True)
        # Used with and without gradients, which tensors made in inference mode could not be.
        with torch.inference_mode(False):
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
        """Inputs and columns."""
        return len(self.rows), len(self.columns)

    @property
    def dense(self) -> bool:
        """Whether every input has a token in every column."""
        return len(self.column_ids) == len(self.rows) * len(self.columns)

    @property
    def slot_ids(self) -> Int[Tensor, " tokens"]:
        """The slot of each token."""
        return self.columns[self.column_ids]

    @property
    def positions(self) -> Int[Tensor, " tokens"]:
        """The absolute position of each token: its slot."""
        return self.slot_ids

    @cached_property
    def attention_mask(self) -> Bool[Tensor, "batch m"]:
        """Whether an input has a token in a column."""
        with torch.inference_mode(False):
            mask = torch.zeros(self.shape, dtype=torch.bool, device=self.rows.device)
            mask[self.inputs_of_tokens, self.column_ids] = True
            return mask

    @cached_property
    def _by_heads(self) -> dict[int, tuple[Int[Tensor, " places"], Int[Tensor, " tokens"]]]:
        return {}

    def _look_ups(self, heads: int) -> tuple[Int[Tensor, " places"], Int[Tensor, " tokens"]]:
        """Where (input, head, column) lies among (token, head), and the other way around; once for
        all layers.

        A place without a token is at any other token's.
        """
        if heads not in self._by_heads:
            with torch.inference_mode(False):
                head = torch.arange(heads, device=self.rows.device)[:, None]
                at_places = (
                    (self.attention_mask.flatten().cumsum(0) - 1).clamp(min=0).view(self.shape)
                )
                of_places = at_places[:, None] * heads + head
                first = (self.inputs_of_tokens * heads + head) * len(self.columns)
                self._by_heads[heads] = of_places.flatten(), (first + self.column_ids).T.flatten()
        return self._by_heads[heads]

    def unpack(self, states: Float[Tensor, "1 tokens width"]) -> Float[Tensor, "batch m width"]:
        """States input by input; places without a token hold some other token's states."""
        return self.unpack_heads(states[:, None]).squeeze(1)

    def pack(self, states: Float[Tensor, "batch m width"]) -> Float[Tensor, "1 tokens width"]:
        """The states of the tokens alone, input by input."""
        return self.pack_heads(states[:, None]).squeeze(1)

    def unpack_heads(
        self, states: Float[Tensor, "1 heads tokens width"]
    ) -> Float[Tensor, "batch heads m width"]:
        """``unpack`` for the states of each head."""
        if self.dense:
            return states.transpose(1, 2).unflatten(1, self.shape).squeeze(0).transpose(1, 2)
        return _Unpacked.apply(states, self)

    def pack_heads(
        self, states: Float[Tensor, "batch heads m width"]
    ) -> Float[Tensor, "1 heads tokens width"]:
        """``pack`` for the states of each head."""
        if self.dense:
            return states.transpose(1, 2).flatten(0, 1)[None].transpose(1, 2)
        return _Packed.apply(states, self)

    def to(self, device: torch.device) -> MicroBatch:
        """The batch on a device; itself where it is there."""
        if self.rows.device.type == device.type:
            return self
        moved = {
            field.name: getattr(self, field.name).to(device, non_blocking=True)
            for field in fields(self)
        }
        return replace(self, **moved)


class _Unpacked(torch.autograd.Function):
    """Unpacked states, a head of an input in one piece; empty places have no part in gradients."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, batch: MicroBatch) -> Tensor:
        ctx.batch = batch
        heads, width = states.shape[1], states.shape[3]
        inputs, columns = batch.shape
        of_places, _ = batch._look_ups(heads)
        return (
            states.transpose(1, 2)
            .reshape(-1, width)
            .index_select(0, of_places)
            .view(inputs, heads, columns, width)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.batch.pack_heads(gradients[0]), None


class _Packed(torch.autograd.Function):
    """Packed states, a token's heads side by side; gradients are 0 at places without a token."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, batch: MicroBatch) -> Tensor:
        ctx.batch = batch
        heads, width = states.shape[1], states.shape[3]
        _, of_tokens = batch._look_ups(heads)
        return (
            states.reshape(-1, width)
            .index_select(0, of_tokens)
            .view(1, -1, heads, width)
            .transpose(1, 2)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        batch: MicroBatch = ctx.batch
        found = batch.unpack_heads(gradients[0])
        return found * batch.attention_mask[:, None, :, None], None


LARGEST_BATCH = 256
"""Inputs in a batch at most, however short they are."""


def micro_batch(
    split: TokenisedSplit, rows: Sequence[int] | Int[np.ndarray, " batch"]
) -> MicroBatch:
    """One batch of the rows with these numbers, in this order."""
    return MicroBatch.of(np.asarray(rows, dtype=np.int64), split.tokens(rows))


def micro_batches(
    split: TokenisedSplit,
    rows: Sequence[int] | Int[np.ndarray, " n"] | None,
    batch_tokens: int,
) -> Iterator[MicroBatch]:
    """The rows in batches, shortest first; the same rows always give the same batches.

    Args:
        rows: row numbers in the split; None takes all of ``split``.
        batch_tokens: tokens in a batch, padding included.
    """
    rows = split.rows if rows is None else np.sort(np.asarray(rows, dtype=np.int64))
    index = split.index_of(rows)
    for group in rows_of_like_length(
        split.first_lengths[index], split.lengths[index], batch_tokens
    ):
        yield micro_batch(split, rows[group])


def rows_of_like_length(
    first_lengths: Int[np.ndarray, " rows"],
    lengths: Int[np.ndarray, " rows"],
    batch_tokens: int,
) -> Iterator[Int[np.ndarray, " batch"]]:
    """Row numbers 0..rows-1 in batches of like length.

    Rows are sorted by length (two texts: by the text tokens of the first, then the second). A batch
    takes rows while rows × columns stays within ``batch_tokens``, at least one and at most
    ``LARGEST_BATCH``.
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
