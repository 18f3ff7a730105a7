"""Local files as tables: JSON, CSV, TSV, Parquet, plain text, CoNLL columns and CoNLL-U."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, groupby, islice
from pathlib import Path, PurePath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from papa.corpora.table import SourceTable, class_names_of, memory_mapped
from papa.errors import DataError, in_one_line

FileFormat = Literal["jsonl", "csv", "tsv", "parquet", "text", "conll", "conllu"]

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
    ".conllu": "conllu",
}
CONLLU = {"tokens": 1, "words": 1, "upos": 3, "xpos": 4, "head": 6, "deprel": 7}
"""Which columns of CoNLL-U are read; the hub's treebanks call words tokens."""
ROW_BYTES = 4 * 1024 * 1024
"""Of a row at most, as a damaged file would take the memory, the time or the process."""
_DEPTH = 32
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?')
_BLOCK = 64 * 1024 * 1024
"""Bytes parsed at once where the whole file has to be."""
_SMALL_BLOCK = 256 * 1024
"""Bytes parsed at once, as a rule."""
_BATCH_ROWS = 32_768
_POOL = pa.system_memory_pool()
"""Gives freed blocks back, where Arrow's own pool keeps several times what a file's blocks need."""


def read_file(path: Path, format: FileFormat | None, *, header: bool) -> SourceTable:
    """The rows of a local file, UTF-8 unless Parquet.

    JSON is an object a line, or one array of objects, alone or under "data".

    Plain text gives one row a line in column ``text``, headings such as ``= Robert Boulter =``
    included; blank lines are skipped. CoNLL files give one row a sentence, with columns "0", "1", …
    of words or tags, CoNLL-U likewise, with those of ``CONLLU``.
    Columns of csv and tsv are strings; tsv knows no quotes, as in GLUE.

    Args:
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
    with one_sentence(path):
        if chosen == "jsonl" and (rows := _array(path)) is not None:
            return _read_array(path, rows)
        if chosen != "parquet":
            check_lines(path, json=chosen == "jsonl")
        if chosen in ("csv", "tsv"):
            table = _separated(path, "," if chosen == "csv" else "\t", header=header)
        else:
            table = _READERS[chosen](path)
    return SourceTable(rows=table, origin=str(path), class_names=class_names_of(table.schema, path))


@contextmanager
def one_sentence(origin: object) -> Iterator[None]:
    """Whatever a library raises inside on the content of ``origin`` becomes one sentence."""
    try:
        yield
    except UnicodeError as error:
        raise DataError(f"{origin} is not UTF-8 ({error}): convert it") from None
    except (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{origin} cannot be read ({in_one_line(error)}): mend the data or set the task's "
            "columns to fit it"
        ) from None


def check_lines(path: Path, *, json: bool) -> None:
    """Refuse lines that are too long or, of JSON, nested too deeply; a line is a row, or a part of
    one.
    """
    with path.open("rb") as file:
        for number in count(1):
            line = file.readline(ROW_BYTES + 1)
            if not line:
                return
            if len(line) > ROW_BYTES:
                raise DataError(
                    f"{path}: line {number} has more than {ROW_BYTES:,} bytes: cut the text of "
                    "this row"
                )
            if (
                json
                and line.count(b"[") + line.count(b"{") > _DEPTH
                and (depth := _depth(line)) > _DEPTH
            ):
                raise DataError(
                    f"{path}: line {number} is nested {depth:,} deep, at most {_DEPTH} are read: "
                    "write one flat JSON object a line"
                )


def _depth(line: bytes) -> int:
    depth = deepest = 0
    for character in _STRING.sub(b"", line):
        if character in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in b"]}":
            depth -= 1
    return deepest


def format_of(path: PurePath) -> FileFormat | None:
    """The format that a file's suffix names."""
    return _FORMATS.get(path.suffix.lower())


def _array(path: Path) -> list[dict[str, Any]] | None:
    """The rows of a file that is one array, alone or under "data"; None of JSON Lines."""
    with (
        suppress(ValueError, RecursionError),
        path.open("rb") as file,
    ):  # The line may be a part of the array.
        head = json.loads(file.readline(ROW_BYTES))
        if isinstance(head, dict) and not isinstance(head.get("data"), list):
            return None
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    rows = found.get("data") if isinstance(found, dict) else found
    return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None


def _read_array(path: Path, rows: Iterable[dict[str, Any]]) -> SourceTable:
    """As the same rows are read from JSON Lines."""
    with tempfile.TemporaryDirectory(prefix="papa-rows-") as folder:
        lines = Path(folder) / "rows.jsonl"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows) or "\n", encoding="utf-8")
        try:
            return replace(read_file(lines, None, header=True), origin=str(path))
        except DataError as error:
            raise DataError(str(error).replace(str(lines), str(path))) from None


def _jsonl(path: Path) -> pa.Table:
    # What follows the first block may hold other types, or a row longer than a block; or the file
    # is damaged.
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        read = pa.json.ReadOptions(block_size=_SMALL_BLOCK)
        with pa.json.open_json(path, read_options=read, memory_pool=_POOL) as reader:
            parse = _dates_as_text(reader.schema)
        with pa.json.open_json(
            path, read_options=read, parse_options=parse, memory_pool=_POOL
        ) as reader:
            return memory_mapped(reader, reader.schema)
    read = pa.json.ReadOptions(block_size=_BLOCK)
    try:
        table = pa.json.read_json(path, read_options=read)
        parse = _dates_as_text(table.schema)
        if parse.explicit_schema != table.schema:
            table = pa.json.read_json(path, read_options=read, parse_options=parse)
        table.validate(full=True)  # Arrow takes any bytes for text until asked.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(_what_is_wrong_with_jsonl(path, error)) from None
    return table


def _dates_as_text(schema: pa.Schema) -> pa.json.ParseOptions:
    """Arrow takes text that looks like dates for dates."""
    types = [(field.name, _as_text(field.type)) for field in schema]
    return pa.json.ParseOptions(explicit_schema=pa.schema(types))


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
            if isinstance(value, dict):
                continue
            wrong = f"holds a {type(value).__name__}, not an object"
        except ValueError as problem:
            wrong = f"is not JSON ({problem})"
        return f"{path}: line {number} {wrong}: write one JSON object a line"
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
        raise _not_read_as(kind, path, reason) from None


def _not_read_as(kind: str, path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} cannot be read as {kind} ({reason}): mend the file or set source.format"
    )


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
        raise _not_read_as("Parquet", path, in_one_line(error)) from None
    return table


def _text(path: Path) -> pa.Table:
    schema = pa.schema([("text", pa.large_string())])
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = filter(None, map(str.strip, file))
            blocks = iter(lambda: list(islice(lines, _BATCH_ROWS)), [])
            return memory_mapped((pa.record_batch([block], schema) for block in blocks), schema)
    except UnicodeDecodeError:
        _lines(path)  # Says where.
        raise


def _conll(path: Path) -> pa.Table:
    lines = [(number, _fields(line)) for number, line in enumerate(_lines(path), start=1)]
    words = [fields for _, fields in lines if fields and fields[0].partition(" ")[0] != "#"]
    width, tags = len(words[0]) if words else 0, {fields[-1] for fields in words}
    sentences: list[list[list[str]]] = [[]]
    for number, fields in lines:
        if not fields:
            if sentences[-1]:
                sentences.append([])
            continue
        fits, begins = len(fields) == width, not sentences[-1]
        # A comment before a sentence; a word "#" has a tag that other words have.
        if begins and fields[0].partition(" ")[0] == "#" and not (fits and fields[-1] in tags):
            continue
        if not fits:
            raise DataError(
                f"{path}: line {number} has {len(fields)} columns where the lines before have "
                f"{width}: write each word on a line of its own with the same columns"
            )
        sentences[-1].append(fields)
    return _sentences(filter(None, sentences), {str(index): index for index in range(width)})


def _fields(line: str) -> list[str]:
    """The columns of a line; none where it ends a sentence or a document."""
    # Spaces alone: a word may hold another white space, such as one that does not break.
    fields = line.split("\t") if "\t" in line else [field for field in line.split(" ") if field]
    return [field.strip() for field in fields] if line.strip() and fields[0] != "-DOCSTART-" else []


def _sentences(sentences: Iterable[Sequence[Sequence[str]]], columns: dict[str, int]) -> pa.Table:
    """A row for each sentence of words, with a list for each column of a name."""
    kept, strings = list(sentences), pa.list_(pa.string())
    return pa.table(
        {
            name: pa.array([[word[at] for word in words] for words in kept], strings)
            for name, at in columns.items()
        }
    )


def _conllu(path: Path) -> pa.Table:
    sentences = []
    lines = enumerate(_lines(path), start=1)
    for blank, group in groupby(lines, lambda line: not line[1].strip()):
        words = []
        for number, line in group:
            fields = line.split("\t")
            if blank or line.startswith("#"):
                continue
            if len(fields) != 10:
                raise DataError(
                    f"{path}: line {number} has {len(fields)} columns, expected the 10 of CoNLL-U: "
                    "mend the line"
                )
            # Ranges ("3-4") and empty nodes ("8.1") are no words of the tree.
            words += [fields] if fields[0].isdecimal() else []
        sentences += [words] if words else []
    return _sentences(sentences, CONLLU)


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    "jsonl": _jsonl,
    "parquet": _parquet,
    "text": _text,
    "conll": _conll,
    "conllu": _conllu,
}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (byte {error.start}): convert it") from None
