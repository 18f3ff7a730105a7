"""Entity tags: IOB2 is what is scored; IOB1 says the same in other words and is converted on reading."""

from __future__ import annotations

import re
from collections.abc import Sequence

from papa.errors import DataError

_TAG = re.compile(r"O|([BI])-(.+)")


def to_iob2(rows: Sequence[Sequence[str]], origin: str) -> tuple[list[list[str]], int]:
    """Tags in IOB2, and how many had to change.

    In IOB2 every entity begins with ``B-``. In IOB1, as in the original CoNLL-2003 files, an entity begins
    with ``I-`` unless it follows another of its type. Reading an ``I-X`` that continues nothing as the
    beginning of an entity loses nothing, and is what the CoNLL scorer does too.

    Raises:
        DataError: a tag is neither ``O`` nor ``B-…`` nor ``I-…``; rows are counted from 1.
    """
    converted: list[list[str]] = []
    changed = 0
    for number, tags in enumerate(rows, start=1):
        row: list[str] = []
        inside: str | None = None
        for tag in tags:
            match = _TAG.fullmatch(tag)
            if match is None:
                raise DataError(
                    f"{origin}: row {number} has the tag '{tag}', which is not IOB2 (O, B-TYPE or I-TYPE): "
                    "convert the tags, or score them with metric token_f1"
                )
            prefix, kind = match.groups()
            if prefix == "I" and kind != inside:
                tag = f"B-{kind}"
                changed += 1
            inside = kind
            row.append(tag)
        converted.append(row)
    return converted, changed
