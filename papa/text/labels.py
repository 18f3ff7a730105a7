"""The labels of a task's rows: classes or numbers, checked and numbered."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from papa.errors import DataError, joined, results_of_all, shown
from papa.spec import TaskSpec


@dataclass(frozen=True)
class SplitLabels:
    """The labels of one split, without the texts or words that have them.

    Attributes:
        origin: how messages name the source.
        column: the name of the label column; empty where there is none.
        class_names: what the source calls the classes 0, 1, …; None where it says nothing.
        values: the labels, flat, as the source has them.
        rows: the row number of each label, from 0.
    """

    origin: str
    column: str
    class_names: tuple[str, ...] | None
    values: Sequence[Any]  # Whatever Arrow holds: each task kind checks them before it uses them.
    rows: Sequence[int]

    def with_names(self, names: Sequence[str] | None) -> SplitLabels:
        """Return the labels with integer classes replaced by their names, where they have some."""
        name_of = dict(enumerate(names or ()))
        values = [
            name_of.get(value, value) if isinstance(value, int) else value for value in self.values
        ]
        return replace(self, values=values)

    def refuse(self, is_wrong: Callable[[Any], bool], reason: str) -> None:
        """Raise a DataError that names each label that is wrong, the row of the first, and why."""
        wrong = [index for index, value in enumerate(self.values) if is_wrong(value)]
        if not wrong:
            return
        first, *others = dict.fromkeys(shown(self.values[index]) for index in wrong)
        also = f" (and other rows {joined(others)})" if others else ""
        raise DataError(
            f"{self.origin}: row {self.rows[wrong[0]] + 1} has {first} as '{self.column}'{also}"
            f"{reason}"
        )


def in_classes(
    task: TaskSpec, splits: Sequence[SplitLabels], warnings: list[str]
) -> tuple[list[SplitLabels], list[np.ndarray], tuple[str, ...]]:
    """Return the labels that are classes, their class numbers, and the classes' names."""
    train = splits[0]
    expected_names = task.labels or train.class_names
    labelled = []
    for split in splits:
        source_names = split.class_names
        if source_names and expected_names and {*source_names} != {*expected_names}:
            raise DataError(
                f"{split.origin} names the classes of '{split.column}' {joined(source_names)} "
                f"where {'the task' if task.labels else train.origin} names them "
                f"{joined(expected_names)}: give the same names everywhere, in any order"
            )
        declared = None if task.kind == "words" else task.labels
        labelled.append(without_undecided(split.with_names(source_names), declared))
    train_dropped = len(splits[0].values) - len(labelled[0].values)
    validation_dropped = len(splits[1].values) - len(labelled[1].values)
    if train_dropped or validation_dropped:
        warnings.append(
            f"{train_dropped:,} training and {validation_dropped:,} validation rows without "
            "agreement (- or -1) are left out, as the task's labels do not name it"
        )
    if task.metric == "entity_f1":
        named = [split.with_names(expected_names) for split in labelled]
        labelled = results_of_all(*(partial(to_iob2, split) for split in named))
    classes, names = to_classes(labelled, expected_names)
    if task.metric == "f1" and len(names) != 2:
        raise DataError(
            f"{train.origin}: metric f1 needs two classes, and '{train.column}' has {len(names)} "
            f"({joined(names)}): score them with metric accuracy"
        )
    return labelled, classes, names


# 18 digits at most, which an int64 holds.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_TAG = re.compile(r"O|([BI])-(.+)")
_UNDECIDED = ("-", "-1")
"""Labels of rows on which annotators disagree, as in SNLI."""
_NAME_THEM = "name the classes in the task's labels, and these rows are left out"


def without_undecided(split: SplitLabels, declared: Sequence[str] | None) -> SplitLabels:
    """Return the labels on which annotators agree if classes are declared, else all labels."""
    undecided = {*_UNDECIDED} - {*declared} if declared else {"-1"}
    # pandas writes integers as floats where a column has gaps.
    texts = [str(value).removesuffix(".0") for value in split.values]
    agreed = [index for index, text in enumerate(texts) if text not in undecided]
    if texts and not agreed:
        raise DataError(
            f"{split.origin}: every '{split.column}' is {split.values[0]}: -1 marks the "
            "hidden labels of GLUE's test splits: use the train and validation splits"
        )
    if not declared or len(agreed) == len(texts):
        return split
    return replace(
        split,
        values=[split.values[index] for index in agreed],
        rows=[split.rows[index] for index in agreed],
    )


def to_classes(
    splits: Sequence[SplitLabels], names: Sequence[str] | None
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Return the class numbers of both splits, and the classes' names.

    The classes are ``names`` or else the sorted distinct training labels. Text that spells integers
    in the usual way counts as integers, unless a label of either split is other text, such as 007.
    """
    no_class = (
        ", which is no class: give integers or strings, complete or remove the row, or "
        "predict numbers with metric spearman"
    )
    results_of_all(*(partial(split.refuse, _is_no_class, no_class) for split in splits))
    as_text = False
    for split in splits:
        strings = {value for value in split.values if isinstance(value, str)}
        are_names = bool(strings) and strings <= {*(names or ())}
        as_text |= are_names or not all(map(_INTEGER.fullmatch, strings))
    if not as_text:
        splits = [replace(split, values=[*map(int, split.values)]) for split in splits]
    splits = [split.with_names(names) for split in splits]
    labels = names or sorted({*splits[0].values})
    class_number = {label: number for number, label in enumerate(labels)}
    known_by = "the task knows" if names else "the training rows have"
    advice = "correct the rows or the task's labels"
    unknown = {
        str(value) for split in splits for value in split.values if value not in class_number
    }
    if unknown & {*_UNDECIDED}:
        advice = f"if it marks rows without agreement, {_NAME_THEM}"
    reason = f" where {known_by} {joined(map(str, labels))}: {advice}"
    results_of_all(
        *(
            partial(split.refuse, lambda value: value not in class_number, reason)
            for split in splits
        )
    )
    classes = [
        np.array([class_number[value] for value in split.values], np.int64) for split in splits
    ]
    return classes, tuple(map(str, labels))


def _is_no_class(value: object) -> bool:
    # From 2**53 on not every integer is a float.
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return value == "" or not (isinstance(value, str | int) or is_whole)


def to_numbers(split: SplitLabels) -> np.ndarray:
    """Return the labels as float32 numbers, one a row."""
    split.refuse(
        _is_no_number,
        " where a regression task (metric spearman or cosine_spearman) needs a number, "
        "finite in float32: give numbers, or score classes with metric accuracy",
    )
    return np.array([float(value) for value in split.values], np.float32)


def _is_no_number(value: Any) -> bool:
    with suppress(TypeError, ValueError):
        return not abs(float(value)) <= float(np.finfo(np.float32).max)
    return True


def to_iob2(split: SplitLabels) -> SplitLabels:
    """Return tags in IOB2, where every entity begins with ``B-``.

    In IOB1, as in the original CoNLL-2003 files, an entity begins with ``I-`` unless it follows
    another of its type: an ``I-X`` that continues nothing is the beginning of an entity.
    """
    split.refuse(
        lambda tag: not _TAG.fullmatch(str(tag)),
        ", which is not IOB2 (O, B-TYPE or I-TYPE): convert the tags, name integers in the "
        "task's labels, or score them with metric token_f1",
    )
    tags = list(split.values)
    previous_entity = (-1, "")
    for index, tag in enumerate(tags):
        match = _TAG.fullmatch(str(tag))
        assert match is not None
        entity = (split.rows[index], match[2])
        if match[1] == "I" and entity != previous_entity:
            tags[index] = f"B-{match[2]}"
        previous_entity = entity
    return replace(split, values=tags)


def label_warnings(
    label_numbers: Sequence[np.ndarray], names: Sequence[str], declared: bool
) -> list[str]:
    """Warn of classes that make scores of the training and validation labels hard to read; where
    the task has ``declared`` its classes, "-" is one on purpose.
    """
    counts = np.stack([np.bincount(numbers, minlength=len(names)) for numbers in label_numbers])
    consequences = {"training": "there is nothing to learn", "validation": "a score shows nothing"}
    warnings = []
    for (split, consequence), class_counts in zip(consequences.items(), counts, strict=True):
        if np.count_nonzero(class_counts) == 1:
            warnings.append(
                f"every {split} label is {shown(names[int(class_counts.argmax())])} "
                f"({class_counts.sum():,} of them), so {consequence}: take other rows, or more of "
                "them"
            )
    for name, (train_count, validation_count) in zip(names, counts.T.tolist(), strict=True):
        if name in _UNDECIDED and len(names) > 2 and not declared:
            warnings.append(
                f"{train_count:,} training and {validation_count:,} validation rows have the label "
                f"{name}, which marks rows without agreement in many data sets and counts as a "
                f"class here: where it does, {_NAME_THEM}"
            )
    return warnings
