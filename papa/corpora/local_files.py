"""Local files as tables: JSON, CSV, TSV, Parquet, plain text, CoNLL columns and CoNLL-U."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path, PurePath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet

from papa.corpora.table import SourceTable, class_names_of
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
_BLOCK_ROWS = 10_000
"""Rows that are held as Python's objects at once."""
Rows = Iterator[dict[str, Any]]


def read_file(path: Path, format: FileFormat | None, *, header: bool) -> SourceTable:
    """The rows of a local file, UTF-8 unless Parquet.

    JSON is an object a line, or one array of objects, alone or under "data". Plain text gives one
    row a line in column ``text``, headings such as ``= Robert Boulter =`` included; blank lines are
    skipped. CoNLL files give one row a sentence, with columns "0", "1", … of words or tags, CoNLL-U
    likewise, with those of ``CONLLU``. Columns of csv and tsv are strings; tsv knows no quotes, as
    in GLUE.

    Args:
        format: how it is written; None takes it from the suffix.
        header: whether csv and tsv start with column names; without them columns are "0", "1", …
    """
    chosen = format or format_of(path)
    existing(path)
    if chosen is None:
        raise DataError(
            f"{path}: the suffix '{path.suffix}' names no known format: set source.format to one "
            f"of {', '.join(sorted(set(_FORMATS.values())))}"
        )
    try:
        if chosen == "parquet":
            rows = pa.parquet.ParquetFile(path).read()
        else:
            readers: dict[str, Callable[[Path], Rows]] = {
                "jsonl": _json,
                "csv": partial(_separated, delimiter=",", header=header),
                "tsv": partial(_separated, delimiter="\t", header=header),
                "text": _text,
                "conll": _conll,
                "conllu": _conllu,
            }
            rows = _table(readers[chosen](path))
    except UnicodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}): convert it") from None
    except (pa.ArrowException, csv.Error, ValueError, RecursionError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as {chosen} ({in_one_line(error)}): give each column one type "
            "in all rows, mend the file or set source.format"
        ) from None
    return SourceTable(rows=rows, origin=str(path), class_names=class_names_of(rows.schema))


def existing(path: Path) -> Path:
    """The path of a file that is there."""
    if not path.is_file():
        raise DataError(
            f"there is no file at {path}: correct the task's source, or put the file there"
        )
    return path


def format_of(path: PurePath) -> FileFormat | None:
    """The format that a file's suffix names."""
    return _FORMATS.get(path.suffix.lower())


def _table(rows: Rows) -> pa.Table:
    """The rows as one table; a row without a column has null there."""
    tables = [
        pa.table({name: _column(block, name) for name in dict.fromkeys(chain(*block))})
        for block in iter(lambda: list(islice(rows, _BLOCK_ROWS)), [])
    ]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def _column(block: Sequence[dict[str, Any]], name: str) -> pa.Array:
    """A column of some rows; numbers that 64 bits do not hold as floats."""
    values = [row.get(name) for row in block]
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, OverflowError):
        if not all(one is None or type(one) in (int, float) for one in values):
            raise
        return pa.array([None if one is None else float(one) for one in values])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\n")


def _json(path: Path) -> Rows:
    with suppress(ValueError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8-sig"))
        found = found.get("data") if isinstance(found, dict) else found
        if isinstance(found, list) and all(isinstance(row, dict) for row in found):
            yield from found
            return
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"it is a {type(row).__name__}")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: line {number} is no JSON object ({error}): write one JSON object a line"
            ) from None
        yield row


def _separated(path: Path, *, delimiter: str, header: bool) -> Rows:
    quotes: dict[str, Any] = {} if delimiter == "," else {"quoting": csv.QUOTE_NONE}
    csv.field_size_limit(sys.maxsize)  # A text may be long.
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=delimiter, **quotes, strict=True)
        names = next(filter(None, lines), []) if header else []
        named = [name for name in names if name]
        if len({*named}) < len(named):
            raise DataError(f"{path} has two columns of one name: rename all but one")
        for fields in filter(None, lines):
            names = names or [str(index) for index in range(len(fields))]
            if len(fields) != len(names):
                raise DataError(
                    f"{path}: line {lines.line_num} has {len(fields)} columns, expected "
                    f"{len(names)}: mend the line or set source.format"
                )
            yield dict(zip(names, fields, strict=True))


def _text(path: Path) -> Rows:
    return ({"text": line.strip()} for _, line in _lines(path) if line.strip())


def _conll(path: Path) -> Rows:
    lines = [(number, _fields(line)) for number, line in _lines(path)]
    words = [fields for _, fields in lines if fields and fields[0].partition(" ")[0] != "#"]
    width, tags = len(words[0]) if words else 0, {fields[-1] for fields in words}
    sentence: list[list[str]] = []
    for number, fields in [*lines, (0, [])]:
        if not fields:
            if sentence:
                columns = zip(*sentence, strict=True)
                yield {str(index): list(column) for index, column in enumerate(columns)}
            sentence = []
            continue
        fits = len(fields) == width
        # A comment before a sentence; a word "#" has a tag that other words have.
        if (
            not sentence
            and fields[0].partition(" ")[0] == "#"
            and not (fits and fields[-1] in tags)
        ):
            continue
        if not fits:
            raise DataError(
                f"{path}: line {number} has {len(fields)} columns where the lines before have "
                f"{width}: write each word on a line of its own with the same columns"
            )
        sentence.append(fields)


def _fields(line: str) -> list[str]:
    """The columns of a line; none where it ends a sentence or a document."""
    # Spaces alone: a word may hold another white space, such as one that does not break.
    fields = line.split("\t") if "\t" in line else [field for field in line.split(" ") if field]
    return [field.strip() for field in fields] if line.strip() and fields[0] != "-DOCSTART-" else []


def _conllu(path: Path) -> Rows:
    for _, group in groupby(_lines(path), lambda line: not line[1].strip()):
        words = []
        for number, line in group:
            fields = line.split("\t")
            if not line.strip() or line.startswith("#"):
                continue
            if len(fields) != 10:
                raise DataError(
                    f"{path}: line {number} has {len(fields)} columns, expected the 10 of CoNLL-U: "
                    "mend the line"
                )
            # Ranges ("3-4") and empty nodes ("8.1") are no words of the tree.
            words += [fields] if fields[0].isdecimal() else []
        if words:
            yield {name: [word[at] for word in words] for name, at in CONLLU.items()}
