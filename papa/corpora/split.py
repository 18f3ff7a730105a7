"""One split of a tokenised corpus: Arrow shards, mapped into memory behind numpy views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from jaxtyping import Int, Int64, Shaped

from papa.corpora.ragged import PackedTokens, concatenated, offsets_of, positions_in_spans
from papa.corpora.tokens import IGNORED
from papa.spec import TaskKind

Labels = Shaped[np.ndarray, " rows_or_tokens"]
"""int64 classes or float32 numbers, one a row; words and mlm: int64 a token, -100 not scored."""


def write_shard(path: Path, tokens: PackedTokens, labels: Labels, *, label_per_token: bool) -> None:
    """Write rows as an Arrow file; its columns are the corpus's format on disk."""
    offsets = pa.array(tokens.offsets.astype(np.int32))
    slot_type = np.int16 if tokens.slot_ids.max(initial=0) < 2**15 else np.int32

    def lists(values: np.ndarray) -> pa.ListArray:
        return pa.ListArray.from_arrays(offsets, pa.array(values))

    batch = pa.record_batch(
        {
            "input_ids": lists(tokens.input_ids),
            "slots": lists(tokens.slot_ids.astype(slot_type)),
            "token_type_ids": lists(tokens.token_type_ids),
            "label": lists(labels.astype(np.int32)) if label_per_token else pa.array(labels),
            "n_first": pa.array(tokens.first_lengths.astype(np.int32)),
        }
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _read_shard(path: Path) -> tuple[PackedTokens, Labels]:
    """The tokens and labels of a shard, views on the mapped file."""
    with pa.memory_map(str(path)) as file:
        batch = pa.ipc.open_file(file).get_batch(0)

    def flat(name: str) -> np.ndarray:
        column = batch.column(name)
        return (column.values if pa.types.is_list(column.type) else column).to_numpy()

    lengths = np.diff(batch.column("input_ids").offsets.to_numpy()).astype(np.int64)
    ids, slots, types, first_lengths, labels = map(
        flat, ("input_ids", "slots", "token_type_ids", "n_first", "label")
    )
    return PackedTokens(ids, slots, types, lengths, first_lengths), labels


@dataclass(frozen=True)
class TokenisedSplit:
    """The rows of one split, or of one shard of it, laid out; real tokens only. Rows keep their
    numbers in the split: every argument called ``rows`` means them.

    Attributes:
        starts: the number of each shard's first row, and one past the last row of all.
        shuffled: the seed by which labels change places; None leaves them.
    """

    shards: tuple[Path, ...]
    kind: TaskKind
    slots: int
    starts: tuple[int, ...]
    name: str
    shuffled: int | None = None

    def __len__(self) -> int:
        return self.starts[-1] - self.starts[0]

    @property
    def rows(self) -> Int64[np.ndarray, " rows"]:
        """The rows' numbers in the split."""
        return np.arange(self.starts[0], self.starts[-1])

    @property
    def label_per_token(self) -> bool:
        return self.kind in ("words", "mlm", "causal")

    def shard(self, index: int) -> TokenisedSplit:
        return replace(self, shards=(self.shards[index],), starts=self.starts[index : index + 2])

    @cached_property
    def _opened(self) -> tuple[PackedTokens, Labels]:
        tokens, labels = zip(*map(_read_shard, self.shards), strict=True)
        return concatenated(tokens), labels[0] if len(labels) == 1 else np.concatenate(labels)

    @property
    def lengths(self) -> Int64[np.ndarray, " rows"]:
        """Real tokens of each row, special ones included."""
        return self.tokens().lengths

    @cached_property
    def first_lengths(self) -> Int64[np.ndarray, " rows"]:
        """Text tokens of each row's first (or only) text."""
        return self.tokens().first_lengths.astype(np.int64)

    @property
    def offsets(self) -> Int64[np.ndarray, " rows_and_one"]:
        """Where each row's tokens start among all tokens."""
        return self.tokens().offsets

    @cached_property
    def labels(self) -> Labels:
        labels = self._opened[1]
        labels = labels.astype(labels.dtype if labels.dtype == np.float32 else np.int64)
        if self.shuffled is not None:
            given = labels != IGNORED if self.label_per_token else np.ones(len(labels), bool)
            labels[given] = np.random.default_rng((self.shuffled, 1)).permutation(labels[given])
        return labels

    @cached_property
    def probed_lengths(self) -> Int64[np.ndarray, " rows"]:
        """Tokens of each row that a probe sees: the labelled ones, or all of a row with a label."""
        if not self.label_per_token:
            return self.lengths
        return np.diff(offsets_of(self.labels != IGNORED)[self.offsets])

    def index_of(self, rows: Sequence[int] | Int[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Where the rows with these numbers are in the arrays of this view."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and (rows.min() < self.starts[0] or rows.max() >= self.starts[-1]):
            raise IndexError(f"rows {self.starts[0]} to {self.starts[-1] - 1} are here")
        return rows - self.starts[0]

    def tokens(self, rows: Sequence[int] | Int[np.ndarray, " n"] | None = None) -> PackedTokens:
        """The real tokens of the rows with these numbers, in this order; None takes all rows, as a
        view on the file where there is one.
        """
        whole = self._opened[0]
        return whole if rows is None else whole.take(self.index_of(rows))

    def labels_of(self, rows: Sequence[int] | Int[np.ndarray, " n"]) -> Labels:
        """The labels of the rows with these numbers, or of all their tokens."""
        index = self.index_of(rows)
        if not self.label_per_token:
            return self.labels[index]
        return self.labels[positions_in_spans(self.offsets[index], self.lengths[index])]
