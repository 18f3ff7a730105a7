"""Batches without padding: inputs of like length side by side, at the slots where any of them is real."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from papa.corpora.batches import CompactBatch
from papa.corpora.split import TokenizedSplit

LARGEST_BATCH = 256
"""Inputs in a batch at most, however short they are."""


def compact_batch(split: TokenizedSplit, rows: Sequence[int] | np.ndarray) -> CompactBatch:
    """One batch of the rows with these numbers, in this order.

    Its columns are the slots, ascending, at which any of the rows has a token.
    """
    rows = np.asarray(rows, dtype=np.int64)
    tokens = split.tokens(rows)
    return CompactBatch.of_tokens(
        rows=torch.from_numpy(rows),
        lengths=torch.from_numpy(tokens.lengths),
        token_slots=torch.from_numpy(tokens.slots),
        input_ids=torch.from_numpy(tokens.input_ids),
        token_type_ids=torch.from_numpy(tokens.token_type_ids),
    )


def compact_batches(
    split: TokenizedSplit,
    rows: Sequence[int] | np.ndarray | None,
    batch_tokens: int,
    *,
    largest: int = LARGEST_BATCH,
) -> Iterator[CompactBatch]:
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
        yield compact_batch(split, batch)


def _batches_of_rows(
    split: TokenizedSplit, rows: Sequence[int] | np.ndarray | None, batch_tokens: int, largest: int
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
