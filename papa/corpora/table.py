"""What sources yield: rows that know where they came from, memory-mapped where many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from papa.errors import DataError, joined, nearest_first


@dataclass(frozen=True)
class SourceTable:
    """The rows of one split, as the source gives them, and for columns of integer classes the names
    that the source gives to 0, 1, …
    """

    rows: pa.Table
    origin: str
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def column(self, name: str) -> pa.ChunkedArray:
        """The column of that name, its dictionaries decoded and its views of text as text."""
        if name not in self.rows.column_names:
            found = nearest_first(name, self.rows.column_names)
            raise DataError(
                f"{self.origin} has no column '{name}' (found: {found}): set the task's columns to "
                "fit it"
            )
        if (times := self.rows.column_names.count(name)) > 1:
            raise DataError(f"{self.origin} has {times} columns named '{name}': rename all but one")
        column = self.rows.column(name)
        if column.null_count:
            row = column.is_null().index(True).as_py() + 1
            raise DataError(
                f"{self.origin}: row {row} has no '{name}' (columns: "
                f"{joined(self.rows.column_names)}): complete the row or remove it"
            )
        kind = _plain(column.type)
        return column if kind == column.type else column.cast(kind)

    def numbered_like(self, name: str, wanted: tuple[str, ...] | None, whose: str) -> SourceTable:
        """The same rows with the integer classes of a column, where the source names them, numbered
        as those of their names are in ``wanted``, of ``whose`` these names are.
        """
        own = self.class_names.get(name)
        if own is None or wanted is None or own == wanted:
            return self
        if set(own) != set(wanted):
            raise DataError(
                f"{self.origin} names the classes of '{name}' {joined(own)} where {whose} names "
                f"them {joined(wanted)}: give the same names everywhere, in any order"
            )
        numbers = pa.array([wanted.index(label) for label in own], pa.int64())
        column = pa.chunked_array(
            [_renumbered(chunk, numbers) for chunk in self.column(name).chunks]
        )
        rows = self.rows.set_column(self.rows.column_names.index(name), name, column)
        return replace(self, rows=rows, class_names={**self.class_names, name: wanted})


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _renumbered(values: pa.Array, numbers: pa.Array) -> pa.Array:
    """Integers, or lists of them, with ``numbers[i]`` for i; others stay as they are."""
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        return type(values).from_arrays(values.offsets, _renumbered(values.values, numbers))
    if not pa.types.is_integer(values.type):
        return values
    positions = pc.index_in(
        values.cast(pa.int64()), value_set=pa.array(range(len(numbers)), pa.int64())
    )
    return pc.coalesce(numbers.take(positions), values.cast(pa.int64()))


_ROWS_AT_ONCE = 8192


def memory_mapped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The batches of one schema as one table, checked: as it is where there is one batch, else
    mapped from a file without a name, whose space is free again when nothing uses the table.
    """

    def checking() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            batch.validate(full=True)
            yield batch

    checked = checking()
    first = list(islice(checked, 2))
    if len(first) < 2:
        return pa.Table.from_batches(first, schema)
    with tempfile.TemporaryDirectory(prefix="papa-rows-") as folder:
        path = Path(folder) / "rows.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in chain(first, checked):
                writer.write_batch(batch)
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def take_rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """These rows in this order. ``Table.take`` would join all of the table's chunks in memory."""
    batches = table.to_batches()
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    blocks = (rows[at : at + _ROWS_AT_ONCE] for at in range(0, len(rows), _ROWS_AT_ONCE))
    return memory_mapped((_gathered(batches, starts, block) for block in blocks), table.schema)


def _gathered(
    batches: list[pa.RecordBatch], starts: np.ndarray, rows: np.ndarray
) -> pa.RecordBatch:
    order = np.argsort(rows)
    ascending = rows[order]
    parts = zip(batches, starts, pairwise(np.searchsorted(ascending, starts)), strict=False)
    found = [
        batch.take(pa.array(ascending[a:b] - start)) for batch, start, (a, b) in parts if a < b
    ]
    return pa.concat_batches(found).take(pa.array(np.argsort(order)))


def class_names_of(schema: pa.Schema, origin: object) -> dict[str, tuple[str, ...]]:
    """The class names that the ``datasets`` library leaves in the files it writes."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    from datasets import Features

    try:
        return names_of_classes(Features.from_arrow_schema(schema))
    except Exception as error:  # It believes whatever the file says.
        raise DataError(
            f"{origin}: what the datasets library left in it of its columns is damaged "
            f"({type(error).__name__}): write the file again"
        ) from None


def names_of_classes(features: object) -> dict[str, tuple[str, ...]]:
    """Column → class names, for columns of a ``datasets.Features`` of classes or lists of them."""
    from datasets import ClassLabel

    named = {}
    for column, feature in dict(features).items():  # type: ignore[call-overload]
        inner = getattr(feature, "feature", feature)
        if isinstance(inner, ClassLabel) and inner.names:
            named[column] = tuple(inner.names)
    return named
