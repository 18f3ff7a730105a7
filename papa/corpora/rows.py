"""A task's rows, checked and sampled: what the layout gets to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papa.corpora.labels import LabelColumn, split_warnings, to_classes, to_iob2, to_numbers
from papa.corpora.limits import check_texts, check_words
from papa.corpora.sources import Split, fingerprint, read_source, source_files
from papa.corpora.table import SourceTable, take_rows
from papa.errors import DataError, joined, shortened
from papa.spec import TaskSpec
from papa.storage.watched import Watched


@dataclass(frozen=True)
class TaskRows:
    """Both splits of a task.

    Attributes:
        train: columns ``text`` (and ``text_pair``; of a similarity both texts are rows) or
            ``words``, and ``label``: int64 classes, float32 numbers, or a list of int64 a row for
            words. Masked language models have ``text`` alone.
        validation: the same columns.
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

    The labels' names are taken from all training rows, before ``train_rows`` of them are sampled;
    ``sample_seed`` draws the samples of both splits.
    """
    files = Watched(f"the source of task '{task.name}'", source_files(task.source), DataError)
    try:
        return rows_of(task, read_source(task, "train"), read_source(task, "validation"))
    finally:  # What is wrong with other content is not what matters.
        if content is not None:
            files.check_digest(content, fingerprint(task.source))


def rows_of(task: TaskSpec, train: SourceTable, validation: SourceTable) -> TaskRows:
    """Check, label and sample the rows of a task's two splits."""
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
        notes["warnings"] = split_warnings(_classes(chosen[0]), _classes(chosen[1]), names)
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
    if task.columns.label is not None:
        validation = validation.numbered_like(train, task.columns.label)
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
    if (name := columns.label) is None:
        # Texts on which a model is compared with itself all have the label 0.
        labels = [np.zeros(len(source.rows), np.int64) for source in sources]
    else:
        first, second = (
            LabelColumn(_one(source.column(name)), source.origin, name) for source in sources
        )
        if task.regression:
            labels = [to_numbers(first), to_numbers(second)]
        else:
            given = train.class_names.get(name)
            *labels, names = to_classes(first, second, task.labels, given)
    tables = []
    for source, label in zip(sources, labels, strict=True):
        texts = {"text": text_column(source, columns.text)}
        if columns.text_pair is not None and task.kind != "text":
            texts["text_pair"] = text_column(source, columns.text_pair)
        tables.append(pa.table({**texts, "label": pa.array(label)}))
    return (tables[0], tables[1]), names, {}


def _words(task: TaskSpec, train: SourceTable, validation: SourceTable) -> Labelled:
    columns = task.columns
    assert columns.label is not None
    assert columns.words is not None
    given = task.labels or train.class_names.get(columns.label)
    notes: dict[str, Any] = {}
    words, sides = [], []
    for name, source in (("train", train), ("validation", validation)):
        row_words = _word_lists(source, columns.words)
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
        tags = row_tags.flatten()
        if task.metric == "entity_f1":
            tags, changed = _as_iob2(tags, counts, given, source.origin)
            if changed:
                notes.setdefault("tags_converted_from_iob1", {})[name] = changed
        row_of = np.repeat(np.arange(len(counts)), counts)
        words.append(row_words)
        sides.append(LabelColumn(tags, source.origin, columns.label, row_of))
    first, second, names = to_classes(sides[0], sides[1], task.labels, given)
    tables = []
    for row_words, labels in zip(words, (first, second), strict=True):
        lists = pa.LargeListArray.from_arrays(row_words.offsets, pa.array(labels))
        tables.append(pa.table({"words": row_words, "label": lists}))
    return (tables[0], tables[1]), names, notes


def _as_iob2(
    tags: pa.Array, counts: np.ndarray, names: tuple[str, ...] | None, origin: str
) -> tuple[pa.Array, int]:
    """Entity tags in IOB2, and how many had to change; integers stay integers."""
    numbered = pa.types.is_integer(tags.type)
    if not (numbered or pa.types.is_string(tags.type) or pa.types.is_large_string(tags.type)):
        return tags, 0  # What is wrong with them is said where labels are numbered.
    spelled = tags.to_pylist()
    if numbered and names is None:
        raise DataError(
            f"{origin}: the entity tags are integers without names, and metric entity_f1 needs "
            "names such as O, B-PER, I-PER: set the task's labels"
        )
    if numbered and names is not None:
        if not all(0 <= tag < len(names) for tag in spelled):
            return tags, 0  # Likewise.
        spelled = [names[tag] for tag in spelled]
    ends = np.cumsum(counts)
    rows = [spelled[end - count : end] for end, count in zip(ends, counts, strict=True)]
    converted, changed = to_iob2(rows, origin)
    if not changed:
        return tags, 0
    flat = [tag for row in converted for tag in row]
    if not numbered or names is None:
        return pa.array(flat, pa.large_string()), changed
    unnamed = sorted(set(flat) - set(names))
    if unnamed:
        raise DataError(
            f"{origin}: the tags are IOB1, and in IOB2 they need names that the labels lack: "
            f"{joined(unnamed)}: add them to the task's labels"
        )
    number = {name: index for index, name in enumerate(names)}
    return pa.array([number[tag] for tag in flat], pa.int64()), changed


def text_column(source: SourceTable, name: str | None) -> pa.ChunkedArray:
    """The column of that name, which holds text."""
    assert name is not None
    column = source.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(
            f"{source.origin}: column '{name}' holds {shortened(kind)}, not text: set the task's "
            "columns to fit it"
        )
    texts = column.cast(kind)
    check_texts(texts, source.origin, name)
    return texts


def _lists(source: SourceTable, name: str) -> pa.Array:
    column = _one(source.column(name))
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise DataError(
            f"{source.origin}: column '{name}' holds {shortened(column.type)}, not one list a row: "
            "a task of kind 'words' needs a list of words and a list of labels in each row"
        )
    check_words(column, source.origin, name)
    if column.flatten().null_count:
        row = next(row for row, values in enumerate(column.to_pylist(), start=1) if None in values)
        raise DataError(
            f"{source.origin}: row {row} has an empty item in '{name}': complete the row or remove "
            "it"
        )
    return column


def _word_lists(source: SourceTable, name: str) -> pa.Array:
    column = _lists(source, name)
    kind = column.type.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(
            f"{source.origin}: column '{name}' holds {shortened(column.type)}, not lists of words: "
            "set the task's columns to fit it"
        )
    return column.cast(pa.large_list(pa.large_string()))


def _one(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array that starts at its own first value."""
    combined = column.combine_chunks()
    return pa.concat_arrays([combined]) if isinstance(combined, pa.Array) else combined


def sampled_rows(count: int, rows: int | None, seed: int) -> np.ndarray:
    """The numbers of a sample of rows, drawn without repeats: int64 [min(rows, count)].

    A sample stands in the order in which it was drawn, so that a smaller one of the same seed is
    the start of a larger one. Where all rows are taken they keep their own order.
    """
    if rows is None or rows >= count:
        return np.arange(count)
    return np.random.default_rng(seed).permutation(count)[:rows]
