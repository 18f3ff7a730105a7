"""What sources yield: rows that know where they came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

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
        if self.rows.column_names.count(name) > 1:
            raise DataError(f"{self.origin} has two columns '{name}': rename all but one")
        column = self.rows.column(name)
        if column.null_count:
            row = column.is_null().index(True).as_py() + 1
            raise DataError(
                f"{self.origin}: row {row} has no '{name}' (columns: "
                f"{joined(self.rows.column_names)}): complete the row or remove it"
            )
        kind = _plain(column.type)
        return column if kind == column.type else column.cast(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_plain(kind.value_type))
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    is_text = pa.types.is_string(kind) or pa.types.is_string_view(kind)
    return pa.large_string() if is_text else kind


def class_names_of(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Those that the ``datasets`` library leaves in the files it writes."""
    try:
        written = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        return names_of_classes(written.get("info", {}).get("features") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # Of another program.


def names_of_classes(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Column → class names, for columns of classes or lists of them of a ``Features.to_dict``."""
    named = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("_type") == "ClassLabel":
            named[column] = tuple(inner["names"])
    return named
