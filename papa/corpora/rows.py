"""A task's rows, checked and sampled: what the layout gets to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papa.corpora.labels import (
    LabelColumn,
    decided,
    label_warnings,
    to_classes,
    to_iob2,
    to_numbers,
)
from papa.corpora.sources import fingerprint, read_source
from papa.corpora.table import SourceTable
from papa.errors import DataError, joined, shortened
from papa.spec import TaskSpec
from papa.spec.task import KINDS


@dataclass(frozen=True)
class TaskRows:
    """Both splits of a task: columns ``text`` (and ``text_pair``; of a similarity both texts are
    rows) or ``words``, and ``label``: int64 classes, float32 numbers, or a list of int64 a row for
    words; running text has ``text`` alone. ``warnings`` are sentences for those who read scores.
    """

    train: pa.Table
    validation: pa.Table
    label_names: tuple[str, ...] | None
    warnings: Sequence[str]


def read_rows(task: TaskSpec, content: str | None = None) -> TaskRows:
    """Read, check, label and sample the rows of a task, whose source has the fingerprint
    ``content`` where one is given.
    """
    try:
        return rows_of(task, read_source(task, "train"), read_source(task, "validation"))
    finally:  # What is wrong with other content is not what matters.
        if content is not None and (found := fingerprint(task.source)) != content:
            raise DataError(
                f"the source of task '{task.name}' changed meanwhile (expected digest "
                f"{content[:12]}, found {found[:12]}): put back what was there, or run again with "
                "what is there now"
            )


def rows_of(task: TaskSpec, train: SourceTable, validation: SourceTable) -> TaskRows:
    """Check, label and sample the rows of a task's two splits; the labels' names are taken from all
    training rows.
    """
    sources = (train, validation)
    tables = [_inputs(task, source) for source in sources]
    names: tuple[str, ...] | None = None
    warnings: list[str] = []
    if "label" in KINDS[task.kind].columns:
        if task.columns.label is not None:
            tables, labels, names = _labelled(task, task.columns.label, tables, sources, warnings)
        else:  # Texts on which a model is compared with itself all have the label 0.
            labels = [pa.array(np.zeros(len(table), np.int64)) for table in tables]
        tables = [
            table.append_column("label", own) for table, own in zip(tables, labels, strict=True)
        ]
    for at, limit in enumerate((task.train_rows, task.validation_rows)):
        tables[at] = tables[at].take(_sampled(len(tables[at]), limit, task.sample_seed))
        if task.kind == "similarity":
            # The two texts of a pair are two rows, one after the other, both with its label.
            first, second = (tables[at][side].to_pylist() for side in ("text", "text_pair"))
            both = list(chain(*zip(first, second, strict=True)))
            label = np.repeat(tables[at]["label"].to_numpy(), 2)
            tables[at] = pa.table({"text": pa.array(both, pa.large_string()), "label": label})
    if names:
        flat = pc.list_flatten if task.kind == "words" else lambda labels: labels
        classes = [flat(table["label"]).to_numpy() for table in tables]
        declared = task.kind == "words" or bool(task.labels)
        warnings += label_warnings(classes, names, declared)
    return TaskRows(tables[0], tables[1], names, warnings)


def _inputs(task: TaskSpec, source: SourceTable) -> pa.Table:
    """What a model reads; of running text, headings stay and blank rows are dropped."""
    read = [name for name in KINDS[task.kind].columns if name != "label"]
    holds = "one list a row" if task.kind == "words" else "text"
    table = pa.table({name: source.column(getattr(task.columns, name), holds) for name in read})
    if task.kind == "words":
        words = table["words"].to_pylist()
        for row, own in enumerate(words, start=1):
            if not all(isinstance(word, str) for word in own):
                raise DataError(
                    f"{source.origin}: row {row} has {shortened(own)} in '{task.columns.words}', "
                    "not lists of words: set the task's columns to fit it"
                )
        # As one piece, whose offsets the labels share.
        return pa.table({"words": pa.array(words, pa.large_list(pa.large_string()))})
    if task.kind in ("mlm", "causal"):
        text = pc.utf8_trim_whitespace(table["text"])
        table = pa.table({"text": text.filter(pc.not_equal(text, ""))})
        if len(text) and not len(table):
            raise DataError(f"{source.origin}: every '{task.columns.text}' is blank: give text")
    return table


def _labelled(
    task: TaskSpec,
    column: str,
    tables: list[pa.Table],
    sources: Sequence[SourceTable],
    warnings: list[str],
) -> tuple[list[pa.Table], list[pa.Array], tuple[str, ...] | None]:
    """The rows of both splits that have a label, the labels, and the classes' names."""
    known, of_words = task.labels or sources[0].class_names.get(column), task.kind == "words"
    sides = [
        _side(task, column, table, source) for table, source in zip(tables, sources, strict=True)
    ]
    if task.regression:
        return tables, [pa.array(to_numbers(side)) for side in sides], None
    for at, source in enumerate(sources):
        own = source.class_names.get(column)
        if own and known and {*own} != {*known}:
            raise DataError(
                f"{source.origin} names the classes of '{column}' {joined(own)} where "
                f"{'the task' if task.labels else sources[0].origin} names them {joined(known)}: "
                "give the same names everywhere, in any order"
            )
        sides[at] = sides[at].named(own)
    kept = [decided(side, None if of_words else task.labels) for side in sides]
    left = [len(side.values) - len(places) for side, places in zip(sides, kept, strict=True)]
    if any(left):
        warnings.append(
            f"{left[0]:,} training and {left[1]:,} validation rows without agreement "
            "(- or -1) are left out, as the task's labels do not name it"
        )
        sides = [side.take(places) for side, places in zip(sides, kept, strict=True)]
        tables = [table.take(places) for table, places in zip(tables, kept, strict=True)]
    if task.metric == "entity_f1":
        sides = [to_iob2(side.named(known)) for side in sides]
    classes, names = to_classes(sides, known)
    if task.metric == "f1" and len(names) != 2:
        raise DataError(
            f"{sources[0].origin}: metric f1 needs two classes, and '{column}' has {len(names)} "
            f"({joined(names)}): score them with metric accuracy"
        )
    labels = [pa.array(own) for own in classes]
    if of_words:
        words = [table["words"].combine_chunks() for table in tables]
        labels = [
            pa.LargeListArray.from_arrays(own.offsets, label)
            for own, label in zip(words, labels, strict=True)
        ]
    return tables, labels, names


def _side(task: TaskSpec, column: str, table: pa.Table, source: SourceTable) -> LabelColumn:
    if task.kind != "words":
        values = source.column(column).to_pylist()
        return LabelColumn(values, range(len(values)), source.origin, column)
    values = source.column(column, "one list a row").to_pylist()
    lengths = pc.list_value_length(table["words"]).to_pylist()
    for row, (words, tags) in enumerate(zip(lengths, values, strict=True), start=1):
        if words != len(tags):
            raise DataError(
                f"{source.origin}: row {row} has {words} words in '{task.columns.words}' and "
                f"{len(tags)} labels in '{column}': give one label a word"
            )
    rows = [row for row, tags in enumerate(values) for _ in tags]
    return LabelColumn(list(chain(*values)), rows, source.origin, column)


def _sampled(count: int, rows: int | None, seed: int) -> np.ndarray:
    """The numbers of a sample of rows, drawn without repeats: int64 [min(rows, count)]; a smaller
    one of the same seed is the start of a larger one, and all rows keep their own order.
    """
    if rows is None or rows >= count:
        return np.arange(count)
    return np.random.default_rng(seed).permutation(count)[:rows]
