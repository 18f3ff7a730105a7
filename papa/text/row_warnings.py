"""Warnings about rows that are probably a mistake, as sentences for readers of the scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papa.errors import joined, shown

_MISSING = ("nan", "NaN", "NAN", "NaT", "<NA>", "None", "null", "NULL")
"""What libraries write as text where a value is missing."""
_SEPARATOR = pa.scalar("\x1f", pa.large_string())
"""Between the texts or words of a row: ASCII's unit separator, which text does not hold."""


def repeated_rows(train: pa.Table, validation: pa.Table) -> list[str]:
    """Warn of validation rows that are training rows too, whatever their labels are."""
    known = _inputs(train).combine_chunks()
    count = pc.sum(pc.is_in(_inputs(validation), value_set=known)).as_py() or 0
    if not count:
        return []
    return [
        f"{count:,} of {len(validation):,} validation rows are training rows too, so the score is "
        "not one on unseen rows alone: remove these rows from one of the splits"
    ]


def _inputs(table: pa.Table) -> pa.ChunkedArray:
    """Return the texts or words of each row as one string."""
    if "words" in table.column_names:
        return pc.binary_join(table["words"], _SEPARATOR)
    texts = [table[name] for name in ("text", "text_pair") if name in table.column_names]
    return pc.binary_join_element_wise(*texts, _SEPARATOR)


def blank_texts(tables: Sequence[pa.Table]) -> list[str]:
    """Warn of rows, in the training and the validation table, with an empty text."""
    counts = []
    for table in tables:
        blank = np.zeros(len(table), bool)
        for name in {"text", "text_pair"}.intersection(table.column_names):
            blank |= pc.equal(pc.utf8_trim_whitespace(table[name]), "").to_numpy()
        counts.append(int(blank.sum()))
    if not any(counts):
        return []
    return [
        f"{counts[0]:,} training and {counts[1]:,} validation rows have an empty text, and count "
        "as all others do: complete or remove them"
    ]


def header_rows(split: str, labels: Sequence[object], column: str) -> list[str]:
    """Warn of a row that seems to hold the names of the columns.

    A column whose name is a number belongs to a file that was read without a header: there the
    first row is suspected where no other has its label.
    """
    if column.isdecimal():
        is_header = len(labels) > 1 and labels[0] not in labels[1:]
        advice = "which no other row has: if it is a header, leave header: false out"
    else:
        is_header = column in labels
        advice = "the name of its column: if it is a header, remove it"
    if not is_header:
        return []
    index = 0 if column.isdecimal() else labels.index(column)
    return [f"{split} row {index + 1} has the label {shown(labels[index])}, {advice}"]


def class_names(names: Sequence[str], counts: np.ndarray) -> list[str]:
    """Warn of classes that are probably missing values, or two spellings of one class.

    ``counts`` are the rows of each class in both splits [2, classes].
    """
    warnings = [
        f"{first:,} training and {second:,} validation rows have the label {shown(name)}, which "
        "is how libraries write a missing value, and which counts as a class: complete or remove "
        "these rows"
        for name, (first, second) in zip(names, counts.T.tolist(), strict=True)
        if name in _MISSING
    ]
    for _, spellings in groupby(sorted(names, key=_normal), _normal):
        variants = [*spellings]
        if len(variants) > 1:
            warnings.append(
                f"the classes {joined(map(shown, variants))} differ only in case or blanks, and "
                f"count as {len(variants)} classes: if they are one class, spell it in one way"
            )
    return warnings


def _normal(name: str) -> str:
    return " ".join(name.split()).casefold()
