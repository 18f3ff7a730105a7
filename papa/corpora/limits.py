"""How large and how deep a row may be, and the one sentence that whatever a parser raises becomes.

The limits are far beyond what an encoder reads of a row; they keep a damaged file from taking the
memory, the time or, as parsers recurse, the whole process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from papa.errors import DataError, in_one_line

ROW_BYTES = 4 * 1024 * 1024
ROW_WORDS = 65_536
_DEPTH = 32
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?')


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


def check_texts(texts: pa.ChunkedArray, origin: str, column: str) -> None:
    """Refuse texts that are too long."""
    _check_sizes(pc.binary_length(texts), ROW_BYTES, "bytes", origin, column)


def check_words(lists: pa.Array, origin: str, column: str) -> None:
    """Refuse rows of too many words."""
    _check_sizes(pc.list_value_length(lists), ROW_WORDS, "items", origin, column)


def _check_sizes(
    sizes: pa.Array | pa.ChunkedArray, most: int, unit: str, origin: str, column: str
) -> None:
    if len(sizes) and pc.max(sizes).as_py() > most:
        row = pc.index(pc.greater(sizes, most), True).as_py()
        raise DataError(
            f"{origin}: row {row + 1} has {sizes[row].as_py():,} {unit} in '{column}', at most "
            f"{most:,} are read: cut this row"
        )
