"""Rows that know where they came from, and local files of them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, dropwhile, groupby
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from papa.errors import DataError, in_one_line, joined, nearest_first, shortened, shown
from papa.files import refuse_pointer

_FORMATS = {f".{own}": own for own in ("jsonl", "csv", "tsv", "parquet", "conll", "conllu")}
_FORMATS |= {".ndjson": "jsonl", ".json": "jsonl", ".bio": "conll", ".iob": "conll"}
_FORMATS |= {".txt": "text", ".raw": "text"}
CONLLU = {"tokens": 1, "words": 1, "upos": 3, "xpos": 4, "head": 6, "deprel": 7}
"""Which columns of CoNLL-U are read; the hub's treebanks call words tokens."""
Rows = Iterable[dict[str, Any]]
_UNREADABLE = (pa.ArrowException, csv.Error, ValueError, OSError, RecursionError, OverflowError)


@dataclass(frozen=True)
class SourceTable:
    """The rows of one split as the source gives them, and the names of columns of classes."""

    rows: pa.Table
    origin: str
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def column(self, name: str) -> pa.ChunkedArray:
        """The column of that name, which is whole."""
        if name not in self.rows.column_names:
            found = nearest_first(name, self.rows.column_names)
            raise DataError(
                f"{self.origin} has no column '{name}' (found: {found}): name the right column"
            )
        column = self.rows.column(name)
        if column.null_count:
            row = column.is_null().index(True).as_py() + 1
            raise DataError(f"{self.origin}: row {row} has no '{name}': complete or remove it")
        return column

    def texts(self, name: str) -> pa.ChunkedArray:
        """A column of text as large strings."""
        column = self.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if kind not in (pa.string(), pa.large_string(), pa.string_view()):
            raise DataError(
                f"{self.origin}: column '{name}' holds {shortened(kind)}, not text: name the right "
                "column"
            )
        return column.cast(pa.large_string())


def names_of_classes(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Column → class names, for columns of classes or lists of them of a ``Features.to_dict``."""
    named = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("_type") == "ClassLabel":
            named[column] = tuple(inner["names"])
    return named


def read_file(path: Path, format: str | None = None, *, header: bool = True) -> SourceTable:
    """The rows of a local file, UTF-8 unless Parquet, of a ``format`` or that of its suffix.

    JSON is an object a line, or one array of objects, alone or under "data". Plain text is a row a
    line, ``text``, headings included; blank lines are skipped. CoNLL is a row a sentence, with
    columns "0", "1", … of words or tags, CoNLL-U with those of ``CONLLU``. Columns of csv and tsv
    are strings, "0", "1", … without a ``header``; tsv knows no quotes, as in GLUE. Parquet may have
    the class names that the ``datasets`` library leaves in the files it writes.
    """
    existing(path)
    chosen = format or format_of(path)
    if chosen is None:
        raise DataError(
            f"{path}: the suffix '{path.suffix}' names no known format: set source.format to one "
            f"of {joined(sorted({*_FORMATS.values()}))}"
        )
    features: Mapping[str, Any] = {}
    try:
        if chosen == "parquet":
            rows = pa.parquet.ParquetFile(path).read()
            written = json.loads((rows.schema.metadata or {}).get(b"huggingface", b"{}"))
            features = dict(written).get("info", {}).get("features") or {}
        elif chosen in ("csv", "tsv"):
            rows = _table(_separated(path, "," if chosen == "csv" else "\t", header))
        else:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            readers = {"jsonl": _json, "conll": _conll, "conllu": _conllu}
            texts = {"text": [line.strip() for line in lines if line.strip()]}
            rows = pa.table(texts) if chosen == "text" else _table(readers[chosen](lines))
    except _UNREADABLE as error:
        raise DataError(
            f"{path} cannot be read as {chosen} ({in_one_line(error)}): save text as UTF-8, give "
            "each column one type in all rows, mend the file or set source.format"
        ) from None
    return SourceTable(rows, str(path), names_of_classes(features))


def existing(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"there is no file at {path}: correct the path, or put the file there")
    refuse_pointer(path, DataError)
    return path


def format_of(path: PurePath) -> str | None:
    return _FORMATS.get(path.suffix.lower())


def _table(rows: Rows) -> pa.Table:
    """The rows as a table; a row without a column has null there."""
    rows = list(rows)
    names = dict.fromkeys(chain.from_iterable(rows))
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        return pa.table(columns)
    except UnicodeEncodeError as error:
        raise ValueError(lone_surrogate(error.object, columns)) from None


def lone_surrogate(text: str, columns: Mapping[str, Iterable[Any]]) -> str:
    """Which row of the columns holds a text that is not Unicode, with half an emoji in it, say."""
    for name, values in columns.items():
        for row, value in enumerate(values, start=1):
            if isinstance(value, str | Sequence) and text in value:
                return (
                    f"row {row} has half a character (a lone surrogate) in '{name}', "
                    f"{shown(text)}: correct or remove it"
                )
    return f"{shown(text)} has half a character (a lone surrogate): correct or remove it"


def _json(lines: Sequence[str]) -> Rows:
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads("\n".join(lines))
        return [{**row} for row in (found["data"] if isinstance(found, dict) else found)]
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows += [{**json.loads(line)}] if line.strip() else []
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} is no JSON object: {error}") from None
    return rows


def _separated(path: Path, delimiter: str, header: bool) -> Rows:
    csv.field_size_limit(sys.maxsize)  # A text may be long.
    quoting: Any = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True)
        names = next(filter(None, lines), []) if header else []
        named = [name for name in names if name]
        if len({*named}) < len(named):
            raise ValueError("two columns of one name")
        for fields in filter(None, lines):
            names = names or [str(index) for index in range(len(fields))]
            _check_width(lines.line_num, fields, len(names))
            yield dict(zip(names, fields, strict=True))


def _check_width(number: int, fields: Sequence[str], expected: int) -> None:
    if len(fields) != expected:
        raise ValueError(f"line {number} has {len(fields)} columns, expected {expected}")


def _conll(lines: Sequence[str], width: int = 0) -> Rows:
    def ends(line: tuple[int, list[str]]) -> bool:
        return not any(line[1]) or _mark(line[1]) == "-DOCSTART-"

    def is_comment(line: tuple[int, list[str]]) -> bool:
        # Comments come before a sentence; a word "#" has a tag that other words have.
        return _mark(line[1]) == "#" and not (len(line[1]) == width and line[1][-1] in tags)

    numbered = ((number, _fields(line)) for number, line in enumerate(lines, start=1))
    sentences = [list(group) for between, group in groupby(numbered, ends) if not between]
    words = [fields for group in sentences for _, fields in group if _mark(fields) != "#"]
    width, tags = width or len(words[0] if words else ()), {fields[-1] for fields in words}
    for group in sentences:
        group = list(dropwhile(is_comment, group))
        for number, fields in group:
            _check_width(number, fields, width)
        columns = zip(*(fields for _, fields in group), strict=True)
        if group:
            yield {str(index): list(column) for index, column in enumerate(columns)}


def _mark(fields: Sequence[str]) -> str:
    return fields[0].partition(" ")[0]


def _fields(line: str) -> list[str]:
    # Spaces alone: a word may hold another white space, such as one that does not break.
    fields = line.split("\t") if "\t" in line else filter(None, line.split(" "))
    return [field.strip() for field in fields]


def _conllu(lines: Sequence[str]) -> Rows:
    # A comment becomes an empty range, so that lines keep their numbers.
    lines = ["\t".join(["0-0"] * 10) if line.startswith("#") else line for line in lines]
    for row in _conll(lines, width=10):
        # Ranges ("3-4") and empty nodes ("8.1") are no words of the tree.
        words = [at for at, number in enumerate(row["0"]) if number.isdecimal()]
        if words:
            yield {name: [row[str(column)][at] for at in words] for name, column in CONLLU.items()}
