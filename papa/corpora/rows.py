"""A task's rows, checked and sampled: what the layout gets to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papa.corpora.labels import (
    LabelColumn,
    decided,
    is_text,
    split_warnings,
    to_classes,
    to_iob2,
    to_numbers,
    undecided_warnings,
)
from papa.corpora.local_files import ROW_BYTES
from papa.corpora.sources import Split, fingerprint, read_source, source_files
from papa.corpora.table import SourceTable, take_rows
from papa.errors import DataError, joined, shortened
from papa.spec import TaskSpec
from papa.storage.remembered import Watched

ROW_WORDS = 65_536
"""Words of a row at most: far beyond what an encoder reads of it."""


@dataclass(frozen=True)
class TaskRows:
    """Both splits of a task: columns ``text`` (and ``text_pair``; of a similarity both texts are
    rows) or ``words``, and ``label``: int64 classes, float32 numbers, or a list of int64 a row for
    words. Masked language models have ``text`` alone.

    Attributes:
        label_names: the classes' names; None for regression and masked language models.
        notes: what was done to the rows on reading, for the corpus's metadata; under ``warnings``
            sentences on splits whose classes make a score hard to read.
    """

    train: pa.Table
    validation: pa.Table
    label_names: tuple[str, ...] | None
    notes: dict[str, Any]

    def split(self, name: Split) -> pa.Table:
        return self.train if name == "train" else self.validation


def read_rows(task: TaskSpec, content: str | None = None) -> TaskRows:
    """Read, check, label and sample the rows of a task, whose source has the fingerprint
    ``content`` where one is given.
    """
    files = Watched(f"the source of task '{task.name}'", source_files(task.source), DataError)
    try:
        return rows_of(task, read_source(task, "train"), read_source(task, "validation"))
    finally:  # What is wrong with other content is not what matters.
        if content is not None:
            files.check_digest(content, fingerprint(task.source))


def rows_of(task: TaskSpec, train: SourceTable, validation: SourceTable) -> TaskRows:
    """Check, label and sample the rows of a task's two splits; the labels' names are taken from all
    training rows.
    """
    tables, names, notes = labelled(task, train, validation)
    notes["rows_found"] = {"train": tables[0].num_rows, "validation": tables[1].num_rows}
    chosen = [
        table
        if rows is None
        else take_rows(table, sampled_rows(table.num_rows, rows, task.sample_seed))
        for table, rows in zip(tables, (task.train_rows, task.validation_rows), strict=True)
    ]
    if task.kind == "similarity":
        chosen = [_one_by_one(table) for table in chosen]
    if names:
        said = split_warnings(_classes(chosen[0]), _classes(chosen[1]), names)
        if task.kind != "words" and not task.labels:
            said += undecided_warnings(_classes(chosen[0]), _classes(chosen[1]), names)
        notes["warnings"] = [*notes.get("warnings", ()), *said]
    return TaskRows(train=chosen[0], validation=chosen[1], label_names=names, notes=notes)


def _one_by_one(pairs: pa.Table) -> pa.Table:
    """The two texts of each pair as two rows, one after the other, both with the pair's label."""
    both = pa.concat_arrays([*pairs["text"].chunks, *pairs["text_pair"].chunks])
    order = np.arange(2 * pairs.num_rows).reshape(2, -1).T.ravel()
    label = np.repeat(pairs["label"].to_numpy(), 2)
    return pa.table({"text": both.take(pa.array(order)), "label": label})


def _classes(table: pa.Table) -> np.ndarray:
    """The class of each row, or of each word."""
    labels = table["label"]
    is_list = pa.types.is_list(labels.type) or pa.types.is_large_list(labels.type)
    return (pc.list_flatten(labels) if is_list else labels).to_numpy()


Tables = tuple[pa.Table, pa.Table]
Labelled = tuple[Tables, tuple[str, ...] | None, dict[str, Any]]


def labelled(task: TaskSpec, train: SourceTable, validation: SourceTable) -> Labelled:
    """Both splits in the task's own columns, the classes' names, and what was done to the rows."""
    if (label := task.columns.label) is not None:
        of_train = train.class_names.get(label), train.origin
        wanted = (task.labels, "the task") if task.labels else of_train
        train, validation = (side.numbered_like(label, *wanted) for side in (train, validation))
    read = {"mlm": _unlabelled, "causal": _unlabelled, "words": _words}.get(task.kind, _texts)
    tables, names, notes = read(task, train, validation)
    if task.metric == "f1" and names and len(names) != 2:
        raise DataError(
            f"{train.origin}: metric f1 needs two classes, and '{task.columns.label}' has "
            f"{len(names)} ({joined(names)}): score them with metric accuracy"
        )
    return tables, names, notes


def _unlabelled(task: TaskSpec, train: SourceTable, validation: SourceTable) -> Labelled:
    """Running text: blank rows are dropped, headings stay."""
    tables, dropped = [], {}
    for name, source in (("train", train), ("validation", validation)):
        text = pc.utf8_trim_whitespace(text_column(source, task.columns.text))
        kept = text.filter(pc.not_equal(pc.binary_length(text), 0))
        if len(text) and not len(kept):
            raise DataError(f"{source.origin}: every '{task.columns.text}' is blank: give text")
        tables.append(pa.table({"text": kept}))
        dropped[name] = len(text) - len(kept)
    return (tables[0], tables[1]), None, {"blank_rows_dropped": dropped}


def _texts(task: TaskSpec, train: SourceTable, validation: SourceTable) -> Labelled:
    columns, sources = task.columns, (train, validation)
    names: tuple[str, ...] | None = None
    notes: dict[str, Any] = {}
    tables = []
    for source in sources:
        texts = {"text": text_column(source, columns.text)}
        if columns.text_pair is not None and task.kind != "text":
            texts["text_pair"] = text_column(source, columns.text_pair)
        tables.append(pa.table(texts))
    if (name := columns.label) is None:
        # Texts on which a model is compared with itself all have the label 0.
        labels = [np.zeros(len(source.rows), np.int64) for source in sources]
    else:
        sides = [LabelColumn(_one(source.column(name)), source.origin, name) for source in sources]
        if task.regression:
            labels = [to_numbers(side) for side in sides]
        else:
            if task.labels and len(train.rows):
                kept = [decided(side, task.labels) for side in sides]
                left = [
                    len(side.values) - len(rows) for side, rows in zip(sides, kept, strict=True)
                ]
                if any(left):
                    notes["warnings"] = [
                        f"{left[0]:,} training and {left[1]:,} validation rows without agreement "
                        "(- or -1) are left out, as the task's labels do not name it"
                    ]
                    sides = [side.take(rows) for side, rows in zip(sides, kept, strict=True)]
                    tables = [
                        take_rows(table, rows) for table, rows in zip(tables, kept, strict=True)
                    ]
            first, second = sides
            *labels, names = to_classes(first, second, task.labels, train.class_names.get(name))
    tables = [
        table.append_column("label", pa.array(label))
        for table, label in zip(tables, labels, strict=True)
    ]
    return (tables[0], tables[1]), names, notes


def _words(task: TaskSpec, train: SourceTable, validation: SourceTable) -> Labelled:
    columns = task.columns
    assert columns.label is not None
    assert columns.words is not None
    given = task.labels or train.class_names.get(columns.label)
    notes: dict[str, Any] = {}
    words, sides = [], []
    for name, source in (("train", train), ("validation", validation)):
        row_words = _lists(source, columns.words)
        if not is_text(row_words.type.value_type):
            raise DataError(
                f"{source.origin}: column '{columns.words}' holds {shortened(row_words.type)}, not "
                "lists of words: set the task's columns to fit it"
            )
        row_words = row_words.cast(pa.large_list(pa.large_string()))
        row_tags = _lists(source, columns.label)
        counts = pc.list_value_length(row_words).to_numpy()
        tag_counts = pc.list_value_length(row_tags).to_numpy()
        uneven = np.flatnonzero(counts != tag_counts)
        if len(uneven):
            row = int(uneven[0])
            raise DataError(
                f"{source.origin}: row {row + 1} has {counts[row]} words in '{columns.words}' and "
                f"{tag_counts[row]} labels in '{columns.label}': give one label a word"
            )
        row_of = np.repeat(np.arange(len(counts)), counts)
        side = LabelColumn(row_tags.flatten(), source.origin, columns.label, row_of)
        if task.metric == "entity_f1":
            side, changed = to_iob2(side, given)
            if changed:
                notes.setdefault("tags_converted_from_iob1", {})[name] = changed
        words.append(row_words)
        sides.append(side)
    first, second, names = to_classes(sides[0], sides[1], task.labels, given)
    tables = []
    for row_words, labels in zip(words, (first, second), strict=True):
        lists = pa.LargeListArray.from_arrays(row_words.offsets, pa.array(labels))
        tables.append(pa.table({"words": row_words, "label": lists}))
    return (tables[0], tables[1]), names, notes


def text_column(source: SourceTable, name: str | None) -> pa.ChunkedArray:
    """The column of that name, which holds text."""
    assert name is not None
    texts = source.column(name)
    if not is_text(texts.type):
        raise DataError(
            f"{source.origin}: column '{name}' holds {shortened(texts.type)}, not text: set the "
            "task's columns to fit it"
        )
    _check_sizes(pc.binary_length(texts), ROW_BYTES, "bytes", source.origin, name)
    return texts


def _lists(source: SourceTable, name: str) -> pa.Array:
    column = _one(source.column(name))
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise DataError(
            f"{source.origin}: column '{name}' holds {shortened(column.type)}, not one list a row: "
            "a task of kind 'words' needs a list of words and a list of labels in each row"
        )
    _check_sizes(pc.list_value_length(column), ROW_WORDS, "items", source.origin, name)
    if column.flatten().null_count:
        row = next(row for row, values in enumerate(column.to_pylist(), start=1) if None in values)
        raise DataError(
            f"{source.origin}: row {row} has an empty item in '{name}': complete the row or remove "
            "it"
        )
    return column


def _check_sizes(
    sizes: pa.Array | pa.ChunkedArray, most: int, unit: str, origin: str, column: str
) -> None:
    if len(sizes) and pc.max(sizes).as_py() > most:
        row = pc.index(pc.greater(sizes, most), True).as_py()
        raise DataError(
            f"{origin}: row {row + 1} has {sizes[row].as_py():,} {unit} in '{column}', at most "
            f"{most:,} are read: cut this row"
        )


def _one(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array that starts at its own first value."""
    combined = column.combine_chunks()
    return pa.concat_arrays([combined]) if isinstance(combined, pa.Array) else combined


def sampled_rows(count: int, rows: int | None, seed: int) -> np.ndarray:
    """The numbers of a sample of rows, drawn without repeats: int64 [min(rows, count)]; a smaller
    one of the same seed is the start of a larger one, and all rows keep their own order.
    """
    if rows is None or rows >= count:
        return np.arange(count)
    return np.random.default_rng(seed).permutation(count)[:rows]


def rows_of_seed(count: int, rows: int | None, seed: int) -> np.ndarray:
    """The numbers of the rows on which a ranking seed scores heads: int64 [min(rows, count)].

    Seeds take one part after another of an order of all rows, as many as it has, then of the next
    order: seeds of one order have no row in common.
    """
    if (order := order_of_rows(count, rows, seed)) is None or rows is None:
        return np.arange(count)
    part = seed % (count // rows)
    return np.random.default_rng(order).permutation(count)[part * rows : (part + 1) * rows]


def order_of_rows(count: int, rows: int | None, seed: int) -> int | None:
    """Which order ``rows_of_seed`` takes a part of; None where it takes all rows."""
    return None if rows is None or rows >= count else seed // (count // rows)
