"""A task's rows, checked, labelled and sampled, before they are tokenised."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papa.errors import DataError, joined, shown
from papa.spec import TaskSpec
from papa.spec.task import KINDS
from papa.text.row_warnings import blank_texts, class_names, header_rows, repeated_rows
from papa.text.sources import fingerprint, read_source
from papa.text.table import SourceTable


@dataclass(frozen=True)
class TaskRows:
    """Both splits: columns ``text`` (and ``text_pair``) or ``words``, and ``label``, int64 classes
    or float32 numbers, lists for words; ``warnings`` are sentences for those who read scores.
    """

    train: pa.Table
    validation: pa.Table
    label_names: tuple[str, ...] | None
    warnings: Sequence[str]


def read_rows(task: TaskSpec, content: str | None = None) -> TaskRows:
    """Read the rows of a task; with ``content``, refuse a source of another fingerprint."""
    try:
        return prepare_rows(task, read_source(task, "train"), read_source(task, "validation"))
    finally:
        # Also after an error: a source that changed explains whatever is wrong with its rows.
        if content is not None:
            digest = fingerprint(task.source)
            if digest != content:
                raise DataError(
                    f"the source of task '{task.name}' changed during the run (expected digest "
                    f"{content[:12]}, found {digest[:12]}): restore it, or run again"
                )


def prepare_rows(task: TaskSpec, train: SourceTable, validation: SourceTable) -> TaskRows:
    """Check, label and sample the rows of a task; the training rows define the classes."""
    splits = [_labelled_split(task, source) for source in (train, validation)]
    label_names: tuple[str, ...] | None = None
    warnings: list[str] = []
    if task.regression:
        labels = [to_numbers(split) for split in splits]
    elif splits[0].column:
        splits, labels, label_names = _in_classes(task, splits, warnings)
    else:  # Texts on which a model is compared with itself all have the label 0.
        labels = [np.zeros(len(split.table), np.int64) for split in splits]
    if label_names and task.kind != "words":
        warnings += header_rows("training", splits[0].values, splits[0].column)
        warnings += header_rows("validation", splits[1].values, splits[1].column)
    limits = (task.train_rows, task.validation_rows)
    tables = [
        _sampled(task, split.table, pa.array(split_labels), limit)
        for split, split_labels, limit in zip(splits, labels, limits, strict=True)
    ]
    if label_names:
        has_words = task.kind == "words"
        label_columns = [table["label"] for table in tables]
        if has_words:
            label_columns = [pc.list_flatten(column) for column in label_columns]
        flat_labels = [column.to_numpy() for column in label_columns]
        warnings += label_warnings(flat_labels, label_names, has_words or bool(task.labels))
    warnings += blank_texts(tables) + repeated_rows(*tables)
    if task.kind == "similarity":
        tables = [_both_texts(table) for table in tables]
    return TaskRows(tables[0], tables[1], label_names, warnings)


def _sampled(task: TaskSpec, table: pa.Table, label: pa.Array, limit: int | None) -> pa.Table:
    """Return the table with its labels, at most ``limit`` rows of it."""
    if task.kind == "words":
        offsets = table["words"].combine_chunks().offsets
        label = pa.LargeListArray.from_arrays(offsets, label)
    if "label" in KINDS[task.kind].columns:
        table = table.append_column("label", label)
    if limit is not None and limit < len(table):
        # Without repeats; a smaller sample of the same seed is the start of a larger one.
        table = table.take(np.random.default_rng(task.sample_seed).permutation(len(table))[:limit])
    return table


def _both_texts(table: pa.Table) -> pa.Table:
    """Return the two texts of each pair as two rows in sequence, both with the pair's label."""
    pairs = zip(table["text"].to_pylist(), table["text_pair"].to_pylist(), strict=True)
    texts = pa.array(chain(*pairs), pa.large_string())
    return pa.table({"text": texts, "label": np.repeat(table["label"].to_numpy(), 2)})


@dataclass(frozen=True)
class LabelledSplit:
    """The texts or words of one split, and its labels.

    Attributes:
        table: the columns that the encoder reads, without labels.
        column: the name of the label column; empty where there is none.
        values: the labels, flat, as the source has them.
        rows: the row number of each label, from 0.
    """

    table: pa.Table
    source: SourceTable
    column: str
    values: Sequence[Any]  # Whatever Arrow holds: each task kind checks them before it uses them.
    rows: Sequence[int]

    def with_names(self, names: Sequence[str] | None) -> LabelledSplit:
        """Return the split with integer classes replaced by their names, where they have some."""
        name_of = dict(enumerate(names or ()))
        values = [
            name_of.get(value, value) if isinstance(value, int) else value for value in self.values
        ]
        return replace(self, values=values)

    def label_error(self, index: int, reason: str) -> DataError:
        """Return the error that names the label at ``index`` and its row, and ends in a reason."""
        return DataError(
            f"{self.source.origin}: row {self.rows[index] + 1} has {shown(self.values[index])} as "
            f"'{self.column}'{reason}"
        )


def _labelled_split(task: TaskSpec, source: SourceTable) -> LabelledSplit:
    """Return the rows of a split; of running text, headings stay and blank rows are dropped."""
    columns = {name: getattr(task.columns, name) for name in KINDS[task.kind].columns}
    label_column = columns.pop("label", None) or ""
    labels = source.column(label_column).to_pylist() if label_column else []
    if task.kind != "words":
        table = pa.table({name: source.texts(column) for name, column in columns.items()})
        if task.kind in ("mlm", "causal"):
            text = pc.utf8_trim_whitespace(table["text"])
            table = pa.table({"text": text.filter(pc.not_equal(text, ""))})
            if not len(table):
                raise DataError(f"{source.origin}: every '{columns['text']}' is blank: give text")
        return LabelledSplit(table, source, label_column, labels, range(len(labels)))
    sentences = source.column(columns["words"]).to_pylist()
    for row, (words, tags) in enumerate(zip(sentences, labels, strict=True), start=1):
        lists = isinstance(words, list) and isinstance(tags, list) and len(words) == len(tags)
        if not lists or not all(isinstance(word, str) for word in words):
            raise DataError(
                f"{source.origin}: row {row} has {shown(words)} in '{columns['words']}' and "
                f"{shown(tags)} in '{label_column}': give a list of words and one label a word"
            )
    # In one chunk, so that the labels can share its offsets (``_sampled``).
    table = pa.table({"words": pa.array(sentences, pa.large_list(pa.large_string()))})
    rows = [row for row, tags in enumerate(labels) for _ in tags]
    return LabelledSplit(table, source, label_column, list(chain(*labels)), rows)


def _in_classes(
    task: TaskSpec, splits: Sequence[LabelledSplit], warnings: list[str]
) -> tuple[list[LabelledSplit], list[np.ndarray], tuple[str, ...]]:
    """Return the rows that have a class, their class numbers, and the classes' names."""
    column = splits[0].column
    train_source = splits[0].source
    expected_names = task.labels or train_source.class_names.get(column)
    labelled = []
    for split in splits:
        source_names = split.source.class_names.get(column)
        if source_names and expected_names and {*source_names} != {*expected_names}:
            raise DataError(
                f"{split.source.origin} names the classes of '{column}' {joined(source_names)} "
                f"where {'the task' if task.labels else train_source.origin} names them "
                f"{joined(expected_names)}: give the same names everywhere, in any order"
            )
        declared = None if task.kind == "words" else task.labels
        labelled.append(_without_undecided(split.with_names(source_names), declared))
    train_dropped = len(splits[0].values) - len(labelled[0].values)
    validation_dropped = len(splits[1].values) - len(labelled[1].values)
    if train_dropped or validation_dropped:
        warnings.append(
            f"{train_dropped:,} training and {validation_dropped:,} validation rows without "
            "agreement (- or -1) are left out, as the task's labels do not name it"
        )
    if task.metric == "entity_f1":
        labelled = [to_iob2(split.with_names(expected_names)) for split in labelled]
    classes, names = to_classes(labelled, expected_names)
    if task.metric == "f1" and len(names) != 2:
        raise DataError(
            f"{train_source.origin}: metric f1 needs two classes, and '{column}' has {len(names)} "
            f"({joined(names)}): score them with metric accuracy"
        )
    return labelled, classes, names


# 18 digits at most, which an int64 holds.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_TAG = re.compile(r"O|([BI])-(.+)")
_UNDECIDED = ("-", "-1")
"""Labels of rows on which annotators disagree, as in SNLI."""
_NAME_THEM = "name the classes in the task's labels, and these rows are left out"


def _without_undecided(split: LabelledSplit, declared: Sequence[str] | None) -> LabelledSplit:
    """Return the rows on whose labels annotators agree if classes are declared, else all rows."""
    undecided = {*_UNDECIDED} - {*declared} if declared else {"-1"}
    # pandas writes integers as floats where a column has gaps.
    texts = [str(value).removesuffix(".0") for value in split.values]
    rows = [row for row, text in enumerate(texts) if text not in undecided]
    if texts and not rows:
        raise DataError(
            f"{split.source.origin}: every '{split.column}' is {split.values[0]}: -1 marks the "
            "hidden labels of GLUE's test splits: use the train and validation splits"
        )
    if not declared or len(rows) == len(texts):
        return split
    values = [split.values[row] for row in rows]
    return replace(split, table=split.table.take(rows), values=values, rows=rows)


def to_classes(
    splits: Sequence[LabelledSplit], names: Sequence[str] | None
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Return the class numbers of both splits, and the classes' names.

    The classes are ``names`` or else the sorted distinct training labels. Text that spells integers
    in the usual way counts as integers, unless a label of either split is other text, such as 007.
    """
    as_text = False
    for split in splits:
        strings = {value for value in split.values if isinstance(value, str)}
        are_names = bool(strings) and strings <= {*(names or ())}
        as_text |= are_names or not all(map(_INTEGER.fullmatch, strings))
        for index, value in enumerate(split.values):
            # From 2**53 on not every integer is a float.
            is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
            if value == "" or not (isinstance(value, str | int) or is_whole):
                raise split.label_error(
                    index,
                    ", which is no class: give integers or strings, complete or remove the row, or "
                    "predict numbers with metric spearman",
                )
    if not as_text:
        splits = [replace(split, values=[*map(int, split.values)]) for split in splits]
    splits = [split.with_names(names) for split in splits]
    labels = names or sorted({*splits[0].values})
    class_number = {label: number for number, label in enumerate(labels)}
    for split in splits:
        for index, value in enumerate(split.values):
            if value not in class_number:
                known_by = "the task knows" if names else "the training rows have"
                advice = "correct the rows or the task's labels"
                if str(value) in _UNDECIDED:
                    advice = f"if it marks rows without agreement, {_NAME_THEM}"
                raise split.label_error(
                    index, f" where {known_by} {joined(map(str, labels))}: {advice}"
                )
    classes = [
        np.array([class_number[value] for value in split.values], np.int64) for split in splits
    ]
    return classes, tuple(map(str, labels))


def to_numbers(split: LabelledSplit) -> np.ndarray:
    """Return the labels as float32 numbers, one a row."""
    numbers = []
    for index, value in enumerate(split.values):
        with suppress(TypeError, ValueError):
            numbers.append(float(value))
        if len(numbers) == index or not abs(numbers[index]) <= float(np.finfo(np.float32).max):
            raise split.label_error(
                index,
                " where a regression task (metric spearman or cosine_spearman) needs a number, "
                "finite in float32: give numbers, or score classes with metric accuracy",
            )
    return np.array(numbers, np.float32)


def to_iob2(split: LabelledSplit) -> LabelledSplit:
    """Return the split with tags in IOB2, where every entity begins with ``B-``.

    In IOB1, as in the original CoNLL-2003 files, an entity begins with ``I-`` unless it follows
    another of its type: an ``I-X`` that continues nothing is the beginning of an entity.
    """
    tags = list(split.values)
    previous_entity = (-1, "")
    for index, tag in enumerate(tags):
        match = _TAG.fullmatch(str(tag))
        if match is None:
            raise split.label_error(
                index,
                ", which is not IOB2 (O, B-TYPE or I-TYPE): convert the tags, name integers in the "
                "task's labels, or score them with metric token_f1",
            )
        entity = (split.rows[index], match[2])
        if match[1] == "I" and entity != previous_entity:
            tags[index] = f"B-{match[2]}"
        previous_entity = entity
    return replace(split, values=tags)


SHIFTED = 0.25
"""The total variation distance between the splits' classes above which a warning is given."""


def label_warnings(
    label_numbers: Sequence[np.ndarray], names: Sequence[str], declared: bool
) -> list[str]:
    """Warn of classes that make scores of the training and validation labels hard to read.

    Args:
        label_numbers: class numbers of the training and of the validation split.
        declared: whether the task names its classes, so "-" is one on purpose.
    """
    counts = np.stack([np.bincount(numbers, minlength=len(names)) for numbers in label_numbers])
    consequences = {
        "training": "there is nothing to learn",
        "validation": "a score shows nothing",
    }
    warnings = []
    for (split, consequence), class_counts in zip(consequences.items(), counts, strict=True):
        if np.count_nonzero(class_counts) == 1:
            warnings.append(
                f"every {split} label is {shown(names[int(class_counts.argmax())])} "
                f"({class_counts.sum():,} of them), so {consequence}: take other rows, or more of "
                "them"
            )
    if counts.any(axis=1).all():
        shares = counts / counts.sum(axis=1, keepdims=True)
        difference = np.abs(shares[1] - shares[0])
        distance = difference.sum() / 2
        if distance > SHIFTED:
            # Rounded, so that of equally shifted classes the first is named on every machine.
            shifted = int(difference.round(9).argmax())
            warnings.append(
                "classes are spread differently in the two splits (total variation distance "
                f"{distance:.2f}): {shown(names[shifted])} is {shares[0][shifted]:.0%} of the "
                f"training labels and {shares[1][shifted]:.0%} of the validation labels"
            )
    for name, (train_count, validation_count) in zip(names, counts.T.tolist(), strict=True):
        if name in _UNDECIDED and len(names) > 2 and not declared:
            warnings.append(
                f"{train_count:,} training and {validation_count:,} validation rows have the label "
                f"{name}, which marks rows without agreement in many data sets and counts as a "
                f"class here: where it does, {_NAME_THEM}"
            )
    return warnings + class_names(names, counts)
