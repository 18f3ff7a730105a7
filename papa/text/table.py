"""Tables of rows that know their source, and local files that hold them."""

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, dropwhile
from pathlib import Path, PurePath
from typing import Literal

import pyarrow as pa
import pyarrow.parquet

from papa.errors import DataError, in_one_line, joined, meant, nearest_first, shortened, shown
from papa.files import refuse_pointer

_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".conllu": "conllu",
    ".txt": "text",
    ".raw": "text",
}
"""The format of a file by its suffix."""
CONLLU = {"tokens": 1, "words": 1, "upos": 3, "xpos": 4, "head": 6, "deprel": 7}
"""The columns that are read of CoNLL-U, by name; words are also "tokens", as in treebanks of the
hub."""
Row = dict[str, object]
_UNREADABLE = (pa.ArrowException, csv.Error, ValueError, OSError, RecursionError, OverflowError)


@dataclass(frozen=True)
class SourceTable:
    """The rows of one split as the source has them.

    Attributes:
        origin: how messages name the source: a path, or a data set and its split.
        class_names: of columns of class numbers, the classes' names.
    """

    rows: pa.Table
    origin: str
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return the column of that name; raise a DataError if it is missing or has nulls."""
        if name not in self.rows.column_names:
            raise DataError(self.missing_column_message(name))
        column = self.rows.column(name)
        if column.null_count:
            row = column.is_null().index(True).as_py() + 1
            raise DataError(f"{self.origin}: row {row} has no '{name}': complete or remove it")
        return column

    def missing_column_message(self, name: str) -> str:
        """Return that there is no such column, and those that there are."""
        columns = nearest_first(name, self.rows.column_names)
        return f"{self.origin} has no column '{name}' (found: {columns}): name the right column"

    def texts(self, name: str) -> pa.ChunkedArray:
        """Return a column of text as large strings."""
        column = self.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if kind not in (pa.string(), pa.large_string(), pa.string_view()):
            raise DataError(
                f"{self.origin}: column '{name}' holds {shortened(kind)}, not text: name the right "
                "column"
            )
        return column.cast(pa.large_string())


def names_of_classes(features: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return column → class names, for columns of classes or of lists of them.

    ``features`` is what ``datasets.Features.to_dict`` returns.
    """
    class_names = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("_type") == "ClassLabel":
            class_names[column] = tuple(inner["names"])
    return class_names


def read_file(path: Path, format: str | None = None, *, header: bool = True) -> SourceTable:
    """Read a local file, UTF-8 unless Parquet, of ``format`` (default: that of its suffix).

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
    features: Mapping[str, object] = {}
    try:
        match chosen:
            case "parquet":
                rows = pa.parquet.ParquetFile(path).read()
                schema = json.loads((rows.schema.metadata or {}).get(b"huggingface", b"{}"))
                features = dict(schema).get("info", {}).get("features") or {}
            case "csv":
                rows = _table(_read_separated(path, ",", header))
            case "tsv":
                rows = _table(_read_separated(path, "\t", header))
            case "jsonl":
                rows = _table(_read_json(_lines(path)))
            case "conll":
                rows = _table(_read_conll(_lines(path)))
            case "conllu":
                rows = _table(_read_conllu(_lines(path)))
            case _:
                rows = pa.table({"text": [line.strip() for line in _lines(path) if line.strip()]})
    except _UNREADABLE as error:
        raise DataError(
            f"{path} cannot be read as {chosen} ({in_one_line(error)}): save text as UTF-8, give "
            "each column one type in all rows, correct the file or set source.format"
        ) from None
    return SourceTable(rows, str(path), names_of_classes(features))


def _lines(path: Path) -> list[str]:
    # Not splitlines(), which also splits at signs that a text may hold, such as U+2028.
    return path.read_text(encoding="utf-8-sig").split("\n")


def existing(path: Path) -> Path:
    """Return the path of a file; raise a DataError if there is none."""
    if not path.is_file():
        near = meant(path.name, [file.name for file in path.parent.glob("*")])
        raise DataError(
            f"there is no file at {path}{near}: correct the path, or put the file there"
        )
    refuse_pointer(path, DataError)
    return path


def format_of(path: PurePath) -> str | None:
    """Return the format that a file's suffix names, if any."""
    return _FORMATS.get(path.suffix.lower())


def _table(rows: Iterable[Row]) -> pa.Table:
    """Return the rows as a table; a row without a column has null there."""
    all_rows = list(rows)
    names = dict.fromkeys(chain.from_iterable(all_rows))
    columns = {name: [row.get(name) for row in all_rows] for name in names}
    return pa.table(columns)


def _read_json(lines: Sequence[str]) -> list[Row]:
    """Read one array of objects, alone or under "data", or else an object a line."""
    with suppress(ValueError, TypeError, KeyError):
        document = json.loads("\n".join(lines))
        objects = document["data"] if isinstance(document, dict) else document
        return [{**row} for row in objects]
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append({**json.loads(line)})
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} is not a JSON object: {error}") from None
    return rows


def _read_separated(path: Path, delimiter: Literal[",", "\t"], header: bool) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)  # The default of 131,072 characters ends in an error.
    # Of tsv no quotes are read, as in GLUE; the annotation keeps the type of csv's constants.
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True)
        names = next(filter(None, lines), []) if header else []
        repeated = [name for name, count in Counter(filter(None, names)).items() if count > 1]
        if repeated:
            raise ValueError(f"two columns are called {shown(repeated[0])}")
        for fields in filter(None, lines):
            names = names or [str(index) for index in range(len(fields))]
            _check_width(lines.line_num, fields, len(names))
            yield dict(zip(names, fields, strict=True))


def _check_width(line_number: int, fields: Sequence[str], expected: int) -> None:
    if len(fields) != expected:
        raise ValueError(f"line {line_number} has {len(fields)} columns, expected {expected}")


@dataclass(frozen=True)
class _ConllLine:
    """A line of CoNLL that is not blank: its number, from 1, and its fields."""

    number: int
    fields: list[str]

    @property
    def first_word(self) -> str:
        """The first field, or what of it precedes a space."""
        return self.fields[0].partition(" ")[0]


def _read_conll(lines: Sequence[str]) -> Iterator[Row]:
    """Yield a row a sentence: columns "0", "1", … with a field of each word."""
    sentences = _conll_sentences(lines)
    # "#" begins a comment, or is a word: words have as many fields as others, and a tag of theirs.
    words = [line for sentence in sentences for line in sentence if line.first_word != "#"]
    width = len(words[0].fields) if words else 0
    tags = {word.fields[-1] for word in words}

    def is_comment(line: _ConllLine) -> bool:
        is_word = len(line.fields) == width and line.fields[-1] in tags
        return line.first_word == "#" and not is_word

    for sentence in sentences:
        # Comments stand before a sentence, never inside.
        columns = _columns(list(dropwhile(is_comment, sentence)), width)
        if columns:
            yield {str(index): column for index, column in enumerate(columns)}


def _conll_sentences(lines: Sequence[str]) -> list[list[_ConllLine]]:
    """Split lines into sentences, between which there are blank lines or lines of -DOCSTART-."""
    sentences: list[list[_ConllLine]] = [[]]
    for number, text in enumerate(lines, start=1):
        line = _ConllLine(number, _fields(text))
        if any(line.fields) and line.first_word != "-DOCSTART-":
            sentences[-1].append(line)
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def _columns(sentence: Sequence[_ConllLine], width: int) -> list[list[str]]:
    """Return the fields of a sentence by column, each line of which must have ``width`` fields."""
    for line in sentence:
        _check_width(line.number, line.fields, width)
    return [list(column) for column in zip(*(line.fields for line in sentence), strict=True)]


def _fields(line: str) -> list[str]:
    # Spaces alone: a word may hold other white space, such as a no-break space.
    fields = line.split("\t") if "\t" in line else filter(None, line.split(" "))
    return [field.strip() for field in fields]


def _read_conllu(lines: Sequence[str]) -> Iterator[Row]:
    """Yield a row a sentence, with the columns of ``CONLLU``."""
    for sentence in _conll_sentences(lines):
        rows = [line for line in sentence if not line.fields[0].startswith("#")]
        columns = _columns(rows, 10)
        # Ranges ("3-4") and empty nodes ("8.1") are no words of the tree.
        words = [row for row, line in enumerate(rows) if line.fields[0].isdecimal()]
        if words:
            yield {
                name: [columns[column][word] for word in words] for name, column in CONLLU.items()
            }
