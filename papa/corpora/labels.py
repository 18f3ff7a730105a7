"""Labels: class numbers, names and floats of any spelling; entity tags as IOB2; their spread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from papa.errors import DataError, joined, shown

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""As one writes it, of 64 bits."""
_TAG = re.compile(r"O|([BI])-(.+)")
_UNDECIDED = ("-", "-1")
"""What marks rows on which annotators do not agree, as in SNLI."""
_NAME_THEM = "name the classes in the task's labels, and these rows are left out"
Classes = np.ndarray
"""int64 [labels], the class of each row, or of each word."""


@dataclass(frozen=True)
class LabelColumn:
    """The labels of one split, flat, and the number of the row of each."""

    values: Sequence[Any]
    rows: Sequence[int]
    origin: str
    column: str

    def take(self, places: Sequence[int]) -> LabelColumn:
        """The labels at some places."""
        values, rows = ([own[place] for place in places] for own in (self.values, self.rows))
        return replace(self, values=values, rows=rows)

    def named(self, names: Sequence[str] | None) -> LabelColumn:
        """Integer classes by their names, where they have some; other values as they are."""
        known = dict(enumerate(names or ()))
        values = [known.get(one, one) if isinstance(one, int) else one for one in self.values]
        return replace(self, values=values)

    def refusal(self, at: int, told: str) -> DataError:
        """What is wrong with the label at that place."""
        value, row = shown(self.values[at]), self.rows[at] + 1
        return DataError(f"{self.origin}: row {row} has {value} as '{self.column}'{told}")


def decided(side: LabelColumn, declared: Sequence[str] | None) -> Sequence[int]:
    """The places of the labels on which annotators agree, where classes are declared; else all."""
    marks = {*_UNDECIDED} - {*declared} if declared else {"-1"}
    # pandas writes integers as floats where a column has gaps.
    texts = [str(own).removesuffix(".0") for own in side.values]
    kept = [at for at, text in enumerate(texts) if text not in marks]
    if texts and not kept:
        raise DataError(
            f"{side.origin}: every '{side.column}' is {side.values[0]}: -1 marks the hidden labels "
            "of GLUE's test splits: take the train and validation splits"
        )
    return kept if declared else range(len(texts))


def to_classes(
    sides: Sequence[LabelColumn], names: Sequence[str] | None
) -> tuple[list[Classes], tuple[str, ...]]:
    """Class numbers of both splits, and the classes' names, those of 0, 1, … where they are given.

    Text that spells integers as one writes them counts as integers, unless a label of either split
    is other text, such as 007. Without names, the classes are the sorted distinct training labels.
    With names, a class may be absent from the training rows (a small sample of them, say).
    """
    texts = [{value for value in side.values if isinstance(value, str)} for side in sides]
    as_text = any(
        found and (found <= set(names or ()) or not all(map(_INTEGER.fullmatch, found)))
        for found in texts
    )
    sides = [replace(side, values=_plain(side, as_text)).named(names) for side in sides]
    known = names or sorted({*sides[0].values})
    index = {label: number for number, label in enumerate(known)}
    for side in sides:
        if unknown := {*side.values} - index.keys():
            at = next(at for at, value in enumerate(side.values) if value in unknown)
            if str(side.values[at]) in _UNDECIDED:
                count = f"{side.values.count(side.values[at]):,} of {len(side.values):,}"
                why = f", as {count} rows have, which marks rows without agreement: {_NAME_THEM}"
                raise side.refusal(at, why)
            known_by = "the task knows" if names else "the training rows have"
            raise side.refusal(
                at,
                f" where {known_by} {joined(map(str, known))} (unknown: "
                f"{joined(sorted(map(str, unknown)))}): correct the rows or the task's labels",
            )
    classes = [np.array([index[value] for value in side.values], np.int64) for side in sides]
    return classes, tuple(map(str, known))


def _plain(side: LabelColumn, as_text: bool) -> list[Any]:
    """The labels as integers or as strings."""
    for at, value in enumerate(side.values):
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        if value == "" or not (isinstance(value, str | int) or whole):
            raise side.refusal(
                at,
                ", which is no class: give integers or strings, complete or remove the row, or "
                "predict numbers with metric spearman",
            )
    return list(side.values if as_text else map(int, side.values))


def to_numbers(side: LabelColumn) -> np.ndarray:
    """Labels of a regression task as float32."""
    numbers = []
    for at, value in enumerate(side.values):
        try:
            numbers.append(float(value))
        except (TypeError, ValueError):
            numbers.append(np.nan)
        if not abs(numbers[-1]) <= float(np.finfo(np.float32).max):
            raise side.refusal(
                at,
                " where a regression task (metric spearman or cosine_spearman) needs a number, "
                "finite in float32: give numbers, or score classes with metric accuracy (kind text "
                "or pair)",
            )
    return np.array(numbers, np.float32)


def to_iob2(side: LabelColumn) -> LabelColumn:
    """Tags of words in IOB2.

    In IOB2 every entity begins with ``B-``. In IOB1, as in the original CoNLL-2003 files, an entity
    begins with ``I-`` unless it follows another of its type. Reading an ``I-X`` that continues
    nothing as the beginning of an entity loses nothing, and is what the CoNLL scorer does too.
    """
    tags, inside = list(side.values), (-1, "")
    for at, tag in enumerate(tags):
        match = _TAG.fullmatch(str(tag))
        if match is None:
            raise side.refusal(
                at,
                ", which is not IOB2 (O, B-TYPE or I-TYPE): convert the tags, name integers in the "
                "task's labels, or score them with metric token_f1",
            )
        entity = (side.rows[at], match[2])
        if match[1] == "I" and entity != inside:
            tags[at] = f"B-{match[2]}"
        inside = entity
    return replace(side, values=tags)


SHIFTED = 0.25
"""The total variation distance from which on classes are spread differently in the two splits."""


def label_warnings(splits: Sequence[Classes], names: Sequence[str], declared: bool) -> list[str]:
    """What a reader of the scores must know of the classes of a task's splits, in sentences; mostly
    nothing. Classes that look like rows without agreement are none where they were ``declared``.
    """
    counts = np.stack([np.bincount(own, minlength=len(names)) for own in splits])
    results = ("training", "there is nothing to learn"), ("validation", "a score shows nothing")
    warnings = [
        f"every {split} label is {shown(names[int(found.argmax())])} ({found.sum():,} of them), so "
        f"{so}: take other rows, or more of them"
        for (split, so), found in zip(results, counts, strict=True)
        if np.count_nonzero(found) == 1
    ]
    if counts.any(axis=1).all():
        shares = counts / counts.sum(axis=1, keepdims=True)
        difference = np.abs(shares[1] - shares[0])
        if (distance := difference.sum() / 2) > SHIFTED:
            most = int(difference.round(9).argmax())
            warnings.append(
                "classes are spread differently in the two splits (total variation distance "
                f"{distance:.2f}): {shown(names[most])} is {shares[0][most]:.0%} of the training "
                f"labels and {shares[1][most]:.0%} of the validation labels"
            )
    for mark, (first, second) in zip(names, counts.T.tolist(), strict=True):
        if mark in _UNDECIDED and len(names) > 2 and not declared:
            warnings.append(
                f"{first:,} training and {second:,} validation rows have the label {mark}, which "
                "marks rows without agreement in many data sets and counts as a class here: where "
                f"it does, {_NAME_THEM}"
            )
    return warnings
