"""Labels: class numbers, names and floats of any spelling; entity tags as IOB2; their spread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papa.errors import DataError, in_one_line, joined, shortened, shown

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""As one writes it, of 64 bits."""
_HIDDEN = "-1 marks the hidden labels of GLUE's test splits: take the train and validation splits"
_UNDECIDED = ("-", "-1")
"""What marks rows on which annotators do not agree, as in SNLI."""
_NAME_THEM = "name the classes in the task's labels, and these rows are left out"


@dataclass(frozen=True)
class LabelColumn:
    """The labels of one split, one per row; or one per word, flat, with the row of each."""

    values: pa.Array
    origin: str
    column: str
    row_of: np.ndarray | None = None

    def row(self, index: int) -> int:
        """The row of the label with that index."""
        return index if self.row_of is None else int(self.row_of[index])

    def take(self, rows: np.ndarray) -> LabelColumn:
        """The labels of some rows, which know their numbers."""
        return replace(self, values=self.values.take(pa.array(rows)), row_of=rows)

    def location(self, index: int) -> str:
        return f"{self.origin}: row {self.row(index) + 1}"


def decided(side: LabelColumn, declared: Sequence[str]) -> np.ndarray:
    """The numbers of the rows on which annotators agree."""
    if not (is_text(side.values.type) or _is_numeric(side.values.type)):
        # What is wrong with them is said where labels are numbered.
        return np.arange(len(side.values))
    marks = pa.array(sorted({*_UNDECIDED} - {*declared}), pa.large_string())
    kept = pc.invert(pc.is_in(side.values.cast(pa.large_string()), value_set=marks))
    if not pc.any(kept).as_py():
        found = side.values[0]
        raise DataError(f"{side.origin}: every '{side.column}' is {found}: {_HIDDEN}")
    return np.flatnonzero(kept)


def undecided_warnings(
    train: np.ndarray, validation: np.ndarray, names: Sequence[str]
) -> list[str]:
    """That a class looks like rows without agreement, in a sentence; arguments are those of
    ``split_warnings``.
    """
    marks = [mark for mark in _UNDECIDED if mark in names and len(names) > 2]
    return [
        f"{(train == number).sum():,} training and {(validation == number).sum():,} validation "
        f"rows have the label {mark}, which marks rows without agreement in many data sets and "
        f"counts as a class here: where it does, {_NAME_THEM}"
        for mark in marks
        for number in [names.index(mark)]
    ]


def to_classes(
    train: LabelColumn,
    validation: LabelColumn,
    declared: Sequence[str] | None,
    given: Sequence[str] | None,
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Class numbers (int64) of both splits, and the classes' names.

    Args:
        declared: the names that the task gives to its labels 0, 1, …
        given: the names that the source gives to integer classes.

    Text that spells integers as one writes them counts as integers, unless a label of either split
    is other text, such as 007. Without names, the classes are the sorted distinct training labels.
    With names, a class may be absent from the training rows (a small sample of them, say).
    """
    columns = (train, validation)
    texts = [pc.unique(side.values).to_pylist() for side in columns if is_text(side.values.type)]
    as_text = any(
        found and not (set(found) - set(declared or ()) and all(map(_INTEGER.fullmatch, found)))
        for found in texts
    )
    sides = [_plain(side, as_text) for side in columns]
    kinds = ["integers" if pa.types.is_integer(side.type) else "strings" for side in sides]
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{validation.origin}: column '{validation.column}' holds {kinds[1]} where "
            f"{train.origin} holds {kinds[0]}: spell the labels alike in both splits"
        )
    names = tuple(declared or given or ())
    numbered = bool(names) and kinds[0] == "integers"
    # Strings, or integers without names, are looked up among the names.
    known = pa.array(names, pa.string()) if names else _distinct(sides[0])
    numbers = []
    for side, values in zip(columns, sides, strict=True):
        if numbered:
            _check_range(side, values, len(names))
        else:
            found = pc.index_in(values, value_set=known.cast(values.type))
            if found.null_count:
                _unknown(side, values, found, known, by_task=bool(names))
            values = found
        numbers.append(values.to_numpy(zero_copy_only=False).astype(np.int64))
    return numbers[0], numbers[1], tuple(map(str, known.to_pylist()))


def to_numbers(side: LabelColumn) -> np.ndarray:
    """Labels of a regression task as float32."""
    values = side.values
    if is_text(values.type):
        for index, value in enumerate(values.to_pylist()):
            if not _is_number(value):
                raise DataError(
                    f"{side.location(index)} has {shown(value)} as '{side.column}' where a "
                    "regression task (metric spearman or cosine_spearman) needs a number: give "
                    "numbers, or score classes with metric accuracy (kind text or pair)"
                )
        values = pa.array(map(float, values.to_pylist()), pa.float64())
    elif not _is_numeric(values.type):
        raise DataError(
            f"{side.origin}: column '{side.column}' holds {shortened(values.type)}, not the "
            "numbers of a regression task (metric spearman): set the task's columns to fit it"
        )
    with np.errstate(over="ignore"):
        numbers = (
            values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float32)
        )
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        row, value = side.location(int(bad[0])), values[int(bad[0])]
        raise DataError(
            f"{row} has {value} as '{side.column}', which is no finite number in float32: complete "
            "the row, scale the labels or remove it"
        )
    return numbers


def _plain(side: LabelColumn, as_text: bool) -> pa.Array:
    """The labels as int64 or as strings."""
    values = side.values
    if is_text(values.type):
        values = values.cast(pa.large_string())
        empty = values.index("").as_py()
        if empty >= 0:
            raise DataError(
                f"{side.location(empty)} has no '{side.column}' (it is empty): complete the row or "
                "remove it"
            )
        return values if as_text else _integers(side, values)
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(~np.isfinite(numbers) | (numbers != np.round(numbers)))
        if len(odd):
            raise DataError(
                f"{side.location(int(odd[0]))} has {numbers[odd[0]]} as '{side.column}', which is "
                "no class: give classes, or predict numbers with metric spearman"
            )
        # From here on floats of this size leave out integers.
        exact = 2.0 ** (np.finfo(numbers.dtype).nmant + 1)
        large = np.flatnonzero(np.abs(numbers.astype(np.float64)) >= exact)
        if len(large):
            raise DataError(
                f"{side.location(int(large[0]))} has {numbers[large[0]]} as '{side.column}', and "
                "numbers this large are not exact: number the classes from 0, or name them"
            )
    if not _is_numeric(values.type):
        raise DataError(
            f"{side.origin}: column '{side.column}' holds {shortened(values.type)}, not labels: "
            "give integers or strings"
        )
    integers = _integers(side, values)
    if len(integers) and pc.all(pc.equal(integers, -1)).as_py():
        raise DataError(f"{side.origin}: every '{side.column}' is -1: {_HIDDEN}")
    return integers


def _integers(side: LabelColumn, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{side.origin}: column '{side.column}' holds a number beyond 64 bits "
            f"({in_one_line(error)}): number the classes from 0, or name them"
        ) from None


def _is_numeric(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _check_range(side: LabelColumn, values: pa.Array, count: int) -> None:
    numbers = values.to_numpy(zero_copy_only=False)
    bad = np.flatnonzero((numbers < 0) | (numbers >= count))
    if not len(bad):
        return
    found = int(numbers[bad[0]])
    row = f"{side.location(int(bad[0]))} has {found} as '{side.column}'"
    if found == -1:
        raise DataError(
            f"{row}, as {(numbers == -1).sum():,} of {len(numbers):,} rows have, which marks rows "
            f"without agreement: {_NAME_THEM}"
        )
    raise DataError(
        f"{row} where the task knows the labels 0 to {count - 1}: correct the row or the task's "
        "labels"
    )


def _distinct(values: pa.Array) -> pa.Array:
    distinct = pc.unique(values)
    return distinct.take(pc.sort_indices(distinct))


def _unknown(
    side: LabelColumn, values: pa.Array, index: pa.Array, known: pa.Array, *, by_task: bool
) -> None:
    missing = values.filter(index.is_null())
    first = index.is_null().index(True).as_py()
    found = joined(map(str, _distinct(missing).to_pylist()))
    if by_task:
        names = joined(known.to_pylist())
        raise DataError(
            f"{side.location(first)} has a label that the task does not know: {found} (known: "
            f"{names})"
        )
    hint = "correct the rows, or name all labels in the task's labels"
    if found in _UNDECIDED:
        hint = f"it marks rows without agreement: {_NAME_THEM}"
    raise DataError(f"{side.location(first)} has a label that no training row has: {found}: {hint}")


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return value.isascii() and "_" not in value


_TAG = re.compile(r"O|([BI])-(.+)")


def to_iob2(side: LabelColumn, names: Sequence[str] | None) -> tuple[LabelColumn, int]:
    """Tags of words in IOB2, and how many had to change; integers, which ``names`` spells, stay
    integers.

    In IOB2 every entity begins with ``B-``. In IOB1, as in the original CoNLL-2003 files, an entity
    begins with ``I-`` unless it follows another of its type. Reading an ``I-X`` that continues
    nothing as the beginning of an entity loses nothing, and is what the CoNLL scorer does too.
    """
    numbered, tags = pa.types.is_integer(side.values.type), side.values.to_pylist()
    if numbered and names is None:
        raise DataError(
            f"{side.origin}: the entity tags are integers without names, and metric entity_f1 "
            "needs names such as O, B-PER, I-PER: set the task's labels"
        )
    if numbered and names is not None and all(0 <= tag < len(names) for tag in tags):
        tags = [names[tag] for tag in tags]
    elif not is_text(side.values.type):
        return side, 0  # What is wrong with them is said where labels are numbered.
    changed, inside = 0, (-1, "")
    for index, tag in enumerate(tags):
        match = _TAG.fullmatch(tag)
        if match is None:
            raise DataError(
                f"{side.location(index)} has the tag {shown(tag)}, which is not IOB2 (O, B-TYPE or "
                "I-TYPE): convert the tags, or score them with metric token_f1"
            )
        entity = (side.row(index), match[2])
        if match[1] == "I" and entity != inside:
            tags[index] = f"B-{match[2]}"
            changed += 1
        inside = entity
    if changed and numbered and names is not None:
        if unnamed := sorted(set(tags) - set(names)):
            raise DataError(
                f"{side.origin}: the tags are IOB1, and in IOB2 they need names that the labels "
                f"lack: {joined(unnamed)}: add them to the task's labels"
            )
        number = {name: index for index, name in enumerate(names)}
        return replace(side, values=pa.array([number[tag] for tag in tags], pa.int64())), changed
    return (replace(side, values=pa.array(tags, pa.large_string())) if changed else side), changed


SHIFTED = 0.25
"""Total variation distance between the classes of both splits from which on they count as spread
differently: this share of one split's labels would have to be others for it to be like the other
split.
"""


def split_warnings(train: np.ndarray, validation: np.ndarray, names: Sequence[str]) -> list[str]:
    """What a reader of the scores must know of the classes of a task's splits, in sentences; mostly
    nothing.

    Args:
        train, validation: int64 [labels], the class of each row, or of each word.
    """
    counts = [np.bincount(labels, minlength=len(names)) for labels in (train, validation)]
    warnings = []
    for split, found in zip(("training", "validation"), counts, strict=True):
        if np.count_nonzero(found) == 1:
            warnings.append(
                f"every {split} label is {shown(names[int(found.argmax())])} ({found.sum():,} of "
                "them), so "
                + ("there is nothing to learn" if split == "training" else "a score shows nothing")
                + ": take other rows, or more of them"
            )
    if not all(found.sum() for found in counts):
        return warnings
    shares = [found / found.sum() for found in counts]
    difference = shares[1] - shares[0]
    distance = float(np.abs(difference).sum() / 2)
    if distance > SHIFTED:
        most = int(np.abs(difference).round(9).argmax())
        warnings.append(
            "classes are spread differently in the two splits (total variation distance "
            f"{distance:.2f}): {shown(names[most])} is {shares[0][most]:.0%} of the training "
            f"labels and {shares[1][most]:.0%} of the validation labels"
        )
    return warnings
