"""A task's rows, checked, labelled and sampled, before they are tokenised."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papa.errors import DataError, nearest_first, results_of_all, shown
from papa.spec import TaskSpec
from papa.spec.task import KINDS
from papa.text.labels import SplitLabels, in_classes, label_warnings, to_numbers
from papa.text.sources import SPLITS, fingerprint, read_source
from papa.text.table import SourceTable

_SEPARATOR = pa.scalar("\x1f", pa.large_string())
"""Between the texts or words of a row: ASCII's unit separator, which text does not hold."""


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
        return prepare_rows(
            task, *results_of_all(*(partial(read_source, task, split) for split in SPLITS))
        )
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
    sources = (train, validation)
    splits = results_of_all(*(partial(_texts_and_labels, task, source) for source in sources))
    tables = [table for table, _ in splits]
    labels = [split_labels for _, split_labels in splits]
    label_names: tuple[str, ...] | None = None
    warnings: list[str] = []
    if task.regression:
        numbers = results_of_all(*(partial(to_numbers, split_labels) for split_labels in labels))
    elif labels[0].column:
        labels, numbers, label_names = in_classes(task, labels, warnings)
        if task.kind != "words":
            # A row has one label, and is left out with it.
            tables = list(map(_rows_of_labels, tables, labels))
    else:  # Texts on which a model is compared with itself all have the label 0.
        numbers = [np.zeros(len(table), np.int64) for table in tables]
    limits = (task.train_rows, task.validation_rows)
    tables = [
        _sampled(task, table, pa.array(split_numbers), limit)
        for table, split_numbers, limit in zip(tables, numbers, limits, strict=True)
    ]
    if label_names:
        has_words = task.kind == "words"
        label_columns = [table["label"] for table in tables]
        if has_words:
            label_columns = [pc.list_flatten(column) for column in label_columns]
        flat_labels = [column.to_numpy() for column in label_columns]
        warnings += label_warnings(flat_labels, label_names, has_words or bool(task.labels))
    warnings += repeated_rows(*tables)
    if task.kind == "similarity":
        tables = [_both_texts(table) for table in tables]
    return TaskRows(tables[0], tables[1], label_names, warnings)


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


def _rows_of_labels(table: pa.Table, labels: SplitLabels) -> pa.Table:
    """Return the rows that have one of the labels."""
    return table if len(labels.rows) == len(table) else table.take(labels.rows)


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


def _columns_of(task: TaskSpec, source: SourceTable) -> dict[str, str]:
    """Return the source's columns that a task reads, by their role; raise a DataError for each that
    is not named or is missing.
    """
    existing = source.rows.column_names
    columns: dict[str, str] = {}
    reasons: list[str] = []
    for role in KINDS[task.kind].columns:
        column = getattr(task.columns, role)
        # Whether texts need labels depends on the metric, and a step may read rows by another
        # metric than the task's.
        is_needed = role != "label" or task.kind not in ("text", "pair")
        if column is None and is_needed:
            reasons.append(_unnamed_column(task, role, source))
        elif column is not None and column not in existing:
            reasons.append(f"columns.{role}: {source.missing_column_message(column)}")
        elif column is not None:
            columns[role] = column
    if reasons:
        raise DataError(*reasons)
    return columns


def _unnamed_column(task: TaskSpec, role: str, source: SourceTable) -> str:
    columns = nearest_first(role, source.rows.column_names)
    return (
        f"columns.{role}: a task of kind '{task.kind}' reads it, and no column is named: name one "
        f"of {source.origin} ({columns})"
    )


def check_label_is_named(task: TaskSpec) -> None:
    """Raise a DataError, with the columns that there are, if a whole task's metric reads labels and
    it names no column of them.
    """
    if task.needs_labels and task.columns.label is None:
        raise DataError(_unnamed_column(task, "label", read_source(task, "train")))


def _texts_and_labels(task: TaskSpec, source: SourceTable) -> tuple[pa.Table, SplitLabels]:
    """Return the texts or words of a split, and their labels; of running text, headings stay and
    blank rows are dropped.
    """
    columns = _columns_of(task, source)
    label_column = columns.pop("label", "")
    class_names = source.class_names.get(label_column)
    values = source.column(label_column).to_pylist() if label_column else []
    if task.kind != "words":
        table = pa.table({name: source.texts(column) for name, column in columns.items()})
        if task.kind in ("mlm", "causal"):
            text = pc.utf8_trim_whitespace(table["text"])
            table = pa.table({"text": text.filter(pc.not_equal(text, ""))})
            if not len(table):
                raise DataError(f"{source.origin}: every '{columns['text']}' is blank: give text")
        rows = range(len(values))
        return table, SplitLabels(source.origin, label_column, class_names, values, rows)
    sentences = source.column(columns["words"]).to_pylist()
    for row, (words, tags) in enumerate(zip(sentences, values, strict=True), start=1):
        lists = isinstance(words, list) and isinstance(tags, list) and len(words) == len(tags)
        if not lists or not all(isinstance(word, str) for word in words):
            raise DataError(
                f"{source.origin}: row {row} has {shown(words)} in '{columns['words']}' and "
                f"{shown(tags)} in '{label_column}': give a list of words and one label a word"
            )
    # In one chunk, so that the labels can share its offsets (``_sampled``).
    table = pa.table({"words": pa.array(sentences, pa.large_list(pa.large_string()))})
    all_tags = list(chain(*values))
    rows_of_tags = [row for row, tags in enumerate(values) for _ in tags]
    return table, SplitLabels(source.origin, label_column, class_names, all_tags, rows_of_tags)
