"""A task's rows, checked, labelled and sampled: what the layout gets to see."""

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
    """Read the rows of a task, whose source has the fingerprint ``content`` where one is given."""
    try:
        return rows_of(task, read_source(task, "train"), read_source(task, "validation"))
    finally:  # What is wrong with other content is not what matters.
        if content is not None and (found := fingerprint(task.source)) != content:
            raise DataError(
                f"the source of task '{task.name}' changed meanwhile (expected digest "
                f"{content[:12]}, found {found[:12]}): put back what was there, or run again"
            )


def rows_of(task: TaskSpec, train: SourceTable, validation: SourceTable) -> TaskRows:
    """Check, label and sample the rows of a task; labels are named by all training rows."""
    sides = [_side(task, source) for source in (train, validation)]
    names: tuple[str, ...] | None = None
    warnings: list[str] = []
    if task.regression:
        labels = [to_numbers(side) for side in sides]
    elif sides[0].column:
        sides, labels, names = _in_classes(task, sides, warnings)
    else:  # Texts on which a model is compared with itself all have the label 0.
        labels = [np.zeros(len(side.table), np.int64) for side in sides]
    if names and task.kind != "words":
        for split, side in zip(("training", "validation"), sides, strict=True):
            warnings += header_rows(split, side.values, side.column)
    limits = task.train_rows, task.validation_rows
    tables = [
        _sampled(task, side.table, pa.array(own), limit)
        for side, own, limit in zip(sides, labels, limits, strict=True)
    ]
    if names:
        of_words = task.kind == "words"
        columns = [table["label"] for table in tables]
        flat = [(pc.list_flatten(own) if of_words else own).to_numpy() for own in columns]
        warnings += label_warnings(flat, names, of_words or bool(task.labels))
    warnings += blank_texts(tables) + repeated_rows(*tables)
    if task.kind == "similarity":
        tables = [_both_texts(table) for table in tables]
    return TaskRows(tables[0], tables[1], names, warnings)


def _sampled(task: TaskSpec, table: pa.Table, label: pa.Array, limit: int | None) -> pa.Table:
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
    """The two texts of each pair as two rows, one after the other, both with the pair's label."""
    pairs = zip(table["text"].to_pylist(), table["text_pair"].to_pylist(), strict=True)
    both = pa.array(chain(*pairs), pa.large_string())
    return pa.table({"text": both, "label": np.repeat(table["label"].to_numpy(), 2)})


@dataclass(frozen=True)
class Side:
    """What a model reads of one split, and its labels, flat, with the row's number of each."""

    table: pa.Table
    source: SourceTable
    column: str
    values: Sequence[Any]
    rows: Sequence[int]

    def named(self, names: Sequence[str] | None) -> Side:
        """Integer classes by their names, where they have some."""
        known = dict(enumerate(names or ()))
        values = [known.get(one, one) if isinstance(one, int) else one for one in self.values]
        return replace(self, values=values)

    def refusal(self, at: int, told: str) -> DataError:
        value, row = shown(self.values[at]), self.rows[at] + 1
        return DataError(f"{self.source.origin}: row {row} has {value} as '{self.column}'{told}")


def _side(task: TaskSpec, source: SourceTable) -> Side:
    """The rows of a split; of running text, headings stay and blank rows are dropped."""
    read = {name: getattr(task.columns, name) for name in KINDS[task.kind].columns}
    label = read.pop("label", None) or ""
    given = source.column(label).to_pylist() if label else []
    if task.kind != "words":
        table = pa.table({name: source.texts(column) for name, column in read.items()})
        if task.kind in ("mlm", "causal"):
            text = pc.utf8_trim_whitespace(table["text"])
            table = pa.table({"text": text.filter(pc.not_equal(text, ""))})
            if not len(table):
                raise DataError(f"{source.origin}: every '{read['text']}' is blank: give text")
        return Side(table, source, label, given, range(len(given)))
    words = source.column(read["words"]).to_pylist()
    for row, (own, tags) in enumerate(zip(words, given, strict=True), start=1):
        lists = isinstance(own, list) and isinstance(tags, list) and len(own) == len(tags)
        if not lists or not all(isinstance(word, str) for word in own):
            raise DataError(
                f"{source.origin}: row {row} has {shown(own)} in '{read['words']}' and "
                f"{shown(tags)} in '{label}': give a list of words and one label a word"
            )
    # As one piece, whose offsets the labels share.
    table = pa.table({"words": pa.array(words, pa.large_list(pa.large_string()))})
    rows = [row for row, tags in enumerate(given) for _ in tags]
    return Side(table, source, label, list(chain(*given)), rows)


def _in_classes(
    task: TaskSpec, sides: Sequence[Side], warnings: list[str]
) -> tuple[list[Side], list[np.ndarray], tuple[str, ...]]:
    """The rows that have a class, their classes, and the classes' names."""
    label, first = sides[0].column, sides[0].source
    known, given = task.labels or first.class_names.get(label), []
    for side in sides:
        own = side.source.class_names.get(label)
        if own and known and {*own} != {*known}:
            raise DataError(
                f"{side.source.origin} names the classes of '{label}' {joined(own)} where "
                f"{'the task' if task.labels else first.origin} names them {joined(known)}: give "
                "the same names everywhere, in any order"
            )
        side = side.named(own)
        given.append(_decided(side, None if task.kind == "words" else task.labels))
    left = [len(side.values) - len(own.values) for side, own in zip(sides, given, strict=True)]
    if any(left):
        warnings.append(
            f"{left[0]:,} training and {left[1]:,} validation rows without agreement "
            "(- or -1) are left out, as the task's labels do not name it"
        )
    if task.metric == "entity_f1":
        given = [to_iob2(side.named(known)) for side in given]
    classes, names = to_classes(given, known)
    if task.metric == "f1" and len(names) != 2:
        raise DataError(
            f"{first.origin}: metric f1 needs two classes, and '{label}' has {len(names)} "
            f"({joined(names)}): score them with metric accuracy"
        )
    return given, classes, names


_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_TAG = re.compile(r"O|([BI])-(.+)")
_UNDECIDED = ("-", "-1")
"""What marks rows on which annotators do not agree, as in SNLI."""
_NAME_THEM = "name the classes in the task's labels, and these rows are left out"


def _decided(side: Side, declared: Sequence[str] | None) -> Side:
    """The rows on whose labels annotators agree, where classes are declared; else all."""
    marks = {*_UNDECIDED} - {*declared} if declared else {"-1"}
    # pandas writes integers as floats where a column has gaps.
    texts = [str(own).removesuffix(".0") for own in side.values]
    kept = [at for at, text in enumerate(texts) if text not in marks]
    if texts and not kept:
        raise DataError(
            f"{side.source.origin}: every '{side.column}' is {side.values[0]}: -1 marks the hidden "
            "labels of GLUE's test splits: take the train and validation splits"
        )
    if not declared or len(kept) == len(texts):
        return side
    values = [side.values[at] for at in kept]
    return replace(side, table=side.table.take(kept), values=values, rows=kept)


def to_classes(
    sides: Sequence[Side], names: Sequence[str] | None
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Class numbers of both splits, and the classes' names: those given, else the sorted distinct
    training labels. Text that spells integers as one writes them counts as integers, unless a label
    of either split is other text, such as 007.
    """
    as_text = False
    for side in sides:
        found = {value for value in side.values if isinstance(value, str)}
        named = bool(found) and found <= {*(names or ())}
        as_text |= named or not all(map(_INTEGER.fullmatch, found))
        for at, value in enumerate(side.values):
            whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
            if value == "" or not (isinstance(value, str | int) or whole):
                raise side.refusal(
                    at,
                    ", which is no class: give integers or strings, complete or remove the row, or "
                    "predict numbers with metric spearman",
                )
    if not as_text:
        sides = [replace(side, values=[*map(int, side.values)]) for side in sides]
    sides = [side.named(names) for side in sides]
    known = names or sorted({*sides[0].values})
    index = {label: number for number, label in enumerate(known)}
    for side in sides:
        for at, value in enumerate(side.values):
            if value not in index:
                known_by = "the task knows" if names else "the training rows have"
                advice = "correct the rows or the task's labels"
                if str(value) in _UNDECIDED:
                    advice = f"if it marks rows without agreement, {_NAME_THEM}"
                raise side.refusal(at, f" where {known_by} {joined(map(str, known))}: {advice}")
    classes = [np.array([index[value] for value in side.values], np.int64) for side in sides]
    return classes, tuple(map(str, known))


def to_numbers(side: Side) -> np.ndarray:
    numbers = []
    for at, value in enumerate(side.values):
        with suppress(TypeError, ValueError):
            numbers.append(float(value))
        if len(numbers) == at or not abs(numbers[at]) <= float(np.finfo(np.float32).max):
            raise side.refusal(
                at,
                " where a regression task (metric spearman or cosine_spearman) needs a number, "
                "finite in float32: give numbers, or score classes with metric accuracy",
            )
    return np.array(numbers, np.float32)


def to_iob2(side: Side) -> Side:
    """Tags of words in IOB2, where every entity begins with ``B-``.

    In IOB1, as in the original CoNLL-2003 files, an entity begins with ``I-`` unless it follows
    another of its type: an ``I-X`` that continues nothing is the beginning of an entity.
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


def label_warnings(splits: Sequence[np.ndarray], names: Sequence[str], declared: bool) -> list[str]:
    """What a reader of the scores must know of the classes of both splits, in sentences."""
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
    return warnings + class_names(names, counts)
