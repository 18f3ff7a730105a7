"""One split of a tokenised corpus: memory-mapped Arrow shards behind numpy views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from papa.spec import TaskKind


@dataclass(frozen=True)
class ShardColumns:
    """The columns of one shard as views on its mapped file; nothing is copied.

    Attributes:
        offsets: [rows + 1], where each row's tokens start in the flat columns.
        input_ids, slots, token_type_ids: [tokens].
        labels: [rows], or [tokens] for words and masked language models.
        first_lengths: [rows], text tokens of the first text.
    """

    offsets: np.ndarray
    input_ids: np.ndarray
    slots: np.ndarray
    token_type_ids: np.ndarray
    labels: np.ndarray
    first_lengths: np.ndarray

    @classmethod
    def open(cls, path: Path) -> ShardColumns:
        with pa.memory_map(str(path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)

        def flat(name: str) -> np.ndarray:
            column = batch.column(name)
            return (column.values if pa.types.is_list(column.type) else column).to_numpy(zero_copy_only=True)

        return cls(
            offsets=batch.column("input_ids").offsets.to_numpy(zero_copy_only=True),
            input_ids=flat("input_ids"),
            slots=flat("slots"),
            token_type_ids=flat("token_type_ids"),
            labels=flat("label"),
            first_lengths=flat("n_first"),
        )


@dataclass(frozen=True)
class Tokens:
    """The real tokens of some rows, back to back.

    Attributes:
        input_ids, slots, token_type_ids: [tokens].
        lengths: [rows], tokens of each row.
    """

    input_ids: np.ndarray
    slots: np.ndarray
    token_type_ids: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class TokenisedSplit:
    """The rows of one split, or of one shard of it, laid out; real tokens only.

    Rows keep their numbers in the split, whether the view is of the split or of a shard: ``rows`` lists them,
    and every argument called ``rows`` means them. Arrays ``[rows]`` are in the order of ``rows``.

    Attributes:
        shards: the Arrow IPC files.
        kind: the task's kind: ``text`` and ``pair`` have a label a row, ``words`` and ``mlm`` a label a
            token.
        slots: S.
        starts: the number of each shard's first row, and one past the last row of all.
        name: ``train`` or ``validation``.
    """

    shards: tuple[Path, ...]
    kind: TaskKind
    slots: int
    starts: tuple[int, ...]
    name: str

    def __len__(self) -> int:
        return self.starts[-1] - self.starts[0]

    @property
    def rows(self) -> np.ndarray:
        """int64 [rows], the rows' numbers in the split."""
        return np.arange(self.starts[0], self.starts[-1])

    @property
    def label_per_token(self) -> bool:
        return self.kind in ("words", "mlm")

    def shard(self, index: int) -> TokenisedSplit:
        """The view of one shard."""
        return TokenisedSplit(
            shards=(self.shards[index],),
            kind=self.kind,
            slots=self.slots,
            starts=self.starts[index : index + 2],
            name=self.name,
        )

    @cached_property
    def _columns(self) -> tuple[ShardColumns, ...]:
        return tuple(ShardColumns.open(path) for path in self.shards)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 [rows], real tokens of each row, special ones included."""
        return np.concatenate([np.diff(shard.offsets) for shard in self._columns]).astype(np.int64)

    @cached_property
    def first_lengths(self) -> np.ndarray:
        """int64 [rows], text tokens of each row's first (or only) text."""
        return self._flat("first_lengths").astype(np.int64)

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64 [rows + 1], where each row's tokens start in the flat arrays."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @cached_property
    def labels(self) -> np.ndarray:
        """int64 classes or float32 numbers [rows]; for words and mlm int64 [tokens], -100 if not scored."""
        labels = self._flat("labels")
        return labels.astype(labels.dtype if labels.dtype == np.float32 else np.int64)

    @property
    def input_ids(self) -> np.ndarray:
        """int32 [tokens]; a view for one shard, a copy for several: prefer ``tokens`` on a whole split."""
        return self._flat("input_ids")

    @property
    def slot_ids(self) -> np.ndarray:
        """Integers [tokens], each token's slot; a view for one shard, a copy for several."""
        return self._flat("slots")

    @property
    def token_type_ids(self) -> np.ndarray:
        """int8 [tokens]; a view for one shard, a copy for several."""
        return self._flat("token_type_ids")

    def tokens(self, rows: Sequence[int] | np.ndarray) -> Tokens:
        """The real tokens of the rows with these numbers, in this order; only they are read."""
        rows = np.asarray(rows, dtype=np.int64)
        owners = np.searchsorted(self.starts, rows, side="right") - 1
        if len(rows) and (owners.min() < 0 or owners.max() >= len(self.shards)):
            raise IndexError(
                f"rows {self.starts[0]} to {self.starts[-1] - 1} are here, not {rows.min()} to {rows.max()}"
            )
        spans = []
        for row, owner in zip(rows.tolist(), owners.tolist(), strict=True):
            shard = self._columns[owner]
            local = row - self.starts[owner]
            spans.append((shard, slice(shard.offsets[local], shard.offsets[local + 1])))
        return Tokens(
            input_ids=_joined([shard.input_ids[span] for shard, span in spans], np.int32),
            slots=_joined([shard.slots[span] for shard, span in spans], np.int32),
            token_type_ids=_joined([shard.token_type_ids[span] for shard, span in spans], np.int8),
            lengths=self.lengths[rows - self.starts[0]],
        )

    def _flat(self, name: str) -> np.ndarray:
        columns = [getattr(shard, name) for shard in self._columns]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
