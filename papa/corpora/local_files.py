"""Local files as tables: JSON Lines, CSV, TSV, Parquet, plain text and CoNLL columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from papa.corpora.limits import ROW_BYTES, check_lines, one_sentence
from papa.corpora.table import SourceTable, memory_mapped
from papa.errors import DataError, in_one_line

FileFormat = Literal["jsonl", "csv", "tsv", "parquet", "text", "conll"]

_FORMATS: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "text",
    ".raw": "text",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
}
_BLOCK = 64 * 1024 * 1024
"""Bytes parsed at once where the whole file has to be."""
_SMALL_BLOCK = 256 * 1024
"""Bytes parsed at once, as a rule."""
_BATCH_ROWS = 32_768
_POOL = pa.system_memory_pool()
"""Gives freed blocks back, where Arrow's own pool keeps several times what a file's blocks need."""


def read_file(path: Path, format: FileFormat | None, *, header: bool) -> SourceTable:
    """The rows of a local file.

    Plain text gives one row a line in column ``text``; blank lines are skipped, every other line is
    kept, headings such as ``= Robert Boulter =`` included, as they are text of the corpus. CoNLL
    files give one row a sentence, with columns "0", "1", … of words or tags. Columns of csv and tsv
    are strings; tsv knows no quotes, as in GLUE.

    Args:
        path: the file, UTF-8 unless Parquet.
        format: how it is written; None takes it from the suffix.
        header: whether csv and tsv start with column names; without them columns are "0", "1", …
    """
    if not path.is_file():
        raise DataError(
            f"there is no file at {path}: correct the task's source, or put the file there"
        )
    chosen = format or format_of(path)
    if chosen is None:
        raise DataError(
            f"{path}: the suffix '{path.suffix}' names no known format: set source.format to one "
            f"of {', '.join(sorted(set(_FORMATS.values())))}"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty: give a file with at least one row")
    table = _parsed(path, chosen, header)
    return SourceTable(rows=table, origin=str(path), class_names=class_names_of(table.schema, path))


def _parsed(path: Path, format: FileFormat, header: bool) -> pa.Table:
    readers: dict[str, Callable[[], pa.Table]] = {
        "jsonl": lambda: _jsonl(path),
        "csv": lambda: _separated(path, ",", header=header),
        "tsv": lambda: _separated(path, "\t", header=header),
        "parquet": lambda: _parquet(path),
        "text": lambda: _text(path),
        "conll": lambda: _conll(path),
    }
    with one_sentence(path):
        if format != "parquet":
            check_lines(path, json=format == "jsonl")
        return readers[format]()


def format_of(path: PurePath) -> FileFormat | None:
    """The format that a file's suffix names."""
    return _FORMATS.get(path.suffix.lower())


def _jsonl(path: Path) -> pa.Table:
    # What follows the first block may hold other types, or a row longer than a block; or the file
    # is damaged.
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _streamed_jsonl(path)
    return _whole_jsonl(path)


def _streamed_jsonl(path: Path) -> pa.Table:
    read = pa.json.ReadOptions(block_size=_SMALL_BLOCK)
    with pa.json.open_json(path, read_options=read, memory_pool=_POOL) as reader:
        schema = pa.schema([(field.name, _as_text(field.type)) for field in reader.schema])
        if schema == reader.schema:
            return memory_mapped(reader, schema)
    # Arrow reads text that looks like dates as dates.
    parse = pa.json.ParseOptions(explicit_schema=schema)
    with pa.json.open_json(
        path, read_options=read, parse_options=parse, memory_pool=_POOL
    ) as reader:
        return memory_mapped(reader, schema)


def _whole_jsonl(path: Path) -> pa.Table:
    read = pa.json.ReadOptions(block_size=_BLOCK)
    try:
        table = pa.json.read_json(path, read_options=read)
        dates = {
            field.name: text
            for field in table.schema
            if (text := _as_text(field.type)) != field.type
        }
        if dates:
            parse = pa.json.ParseOptions(explicit_schema=pa.schema(list(dates.items())))
            table = pa.json.read_json(path, read_options=read, parse_options=parse)
        table.validate(full=True)  # Arrow takes any bytes for text until asked.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(_what_is_wrong_with_jsonl(path, error)) from None
    return table


def _as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _what_is_wrong_with_jsonl(path: Path, error: Exception) -> str:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as problem:
            return f"{path}: line {number} is not JSON ({problem}): write one JSON object a line"
        if not isinstance(value, dict):
            kind = type(value).__name__
            return (
                f"{path}: line {number} holds a {kind}, not an object: write one JSON object a line"
            )
    return (
        f"{path}: its lines do not fit one another ({in_one_line(error)}): give each column one "
        "type in all rows"
    )


def _separated(path: Path, delimiter: str, *, header: bool) -> pa.Table:
    # A row may be longer than a block; or the file is damaged.
    with suppress(pa.ArrowInvalid):
        return _streamed(path, delimiter, header=header, block=_SMALL_BLOCK)
    try:
        return _streamed(path, delimiter, header=header, block=2 * ROW_BYTES)
    except pa.ArrowInvalid as error:
        # Arrow asks for a larger block.
        too_long = f"a row has more than {ROW_BYTES:,} bytes"
        reason = too_long if "straddl" in str(error) else in_one_line(error)
        kind = "csv" if delimiter == "," else "tsv"
        raise DataError(
            f"{path} cannot be read as {kind} ({reason}): mend the file or set source.format"
        ) from None


def _streamed(path: Path, delimiter: str, *, header: bool, block: int) -> pa.Table:
    read = pa.csv.ReadOptions(
        use_threads=False, block_size=block, autogenerate_column_names=not header
    )
    quoted = delimiter == ","
    parse = pa.csv.ParseOptions(
        delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted
    )
    with pa.csv.open_csv(path, read_options=read, parse_options=parse) as reader:
        names = reader.schema.names
    convert = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    with pa.csv.open_csv(path, read, parse, convert, _POOL) as reader:
        table = memory_mapped(reader, reader.schema)
    return table if header else table.rename_columns(list(map(str, range(table.num_columns))))


def _parquet(path: Path) -> pa.Table:
    try:
        with pa.parquet.ParquetFile(path) as file, suppress(pa.ArrowInvalid):
            # Dictionaries may change from group to group, which a mapped table cannot follow.
            return memory_mapped(file.iter_batches(_BATCH_ROWS), file.schema_arrow)
        table = pa.parquet.read_table(path)
        table.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{path} cannot be read as Parquet ({in_one_line(error)}): mend the file or set "
            "source.format"
        ) from None
    return table


def _text(path: Path) -> pa.Table:
    try:
        return memory_mapped(_batches_of_lines(path), pa.schema([("text", pa.large_string())]))
    except UnicodeDecodeError:
        _lines(path)  # Says where.
        raise


def _batches_of_lines(path: Path) -> Iterator[pa.RecordBatch]:
    with path.open(encoding="utf-8-sig") as file:
        lines = filter(None, map(str.strip, file))
        while batch := list(islice(lines, _BATCH_ROWS)):
            yield pa.record_batch({"text": pa.array(batch, pa.large_string())})


def _conll(path: Path) -> pa.Table:
    sentences: list[list[list[str]]] = []
    sentence: list[list[str]] = []
    width: int | None = None
    for number, line in enumerate(_lines(path), start=1):
        # Spaces alone: a word may hold another white space, such as one that does not break.
        fields = line.split("\t") if "\t" in line else [field for field in line.split(" ") if field]
        if not line.strip() or fields[0] == "-DOCSTART-":
            if sentence:
                sentences.append(sentence)
            sentence = []
            continue
        fields = [field.strip() for field in fields]
        width = width or len(fields)
        if len(fields) != width:
            raise DataError(
                f"{path}: line {number} has {len(fields)} columns where the lines before have "
                f"{width}: write each word on a line of its own with the same columns"
            )
        sentence.append(fields)
    if sentence:
        sentences.append(sentence)
    columns = {
        str(index): pa.array(
            [[word[index] for word in words] for words in sentences], pa.list_(pa.string())
        )
        for index in range(width or 0)
    }
    return pa.table(columns)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (byte {error.start}): convert it") from None


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
