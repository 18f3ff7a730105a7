"""What every source yields: a table of rows that knows where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from papa.errors import DataError
from papa.names import nearest_first


@dataclass(frozen=True)
class SourceTable:
    """The rows of one split, as the source gives them.

    Attributes:
        rows: the table; nothing is renamed or converted.
        origin: the file or dataset, for messages.
        class_names: for columns of integer classes, the names that the source gives to 0, 1, …
    """

    rows: pa.Table
    origin: str
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def column(self, name: str) -> pa.ChunkedArray:
        """The column of that name.

        Raises:
            DataError: there is none, or a row has no value there; rows are counted from 1.
        """
        if name not in self.rows.column_names:
            found = nearest_first(name, self.rows.column_names)
            raise DataError(f"{self.origin} has no column '{name}' (found: {found}): set the task's columns to fit it")
        column = self.rows.column(name)
        if column.null_count:
            row = column.is_null().index(True).as_py() + 1
            raise DataError(
                f"{self.origin}: row {row} has no '{name}' (columns: {', '.join(self.rows.column_names)}): "
                "complete the row or remove it"
            )
        return column
