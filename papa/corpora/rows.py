"""A task's rows, checked and sampled: what the layout gets to see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


Labelled = tuple[list[pa.Table], tuple[str, ...] | None, list[str]]
"""Both splits in the task's own columns, the classes' names, and warnings."""


def rows_of(task: TaskSpec, train: SourceTable, validation: SourceTable) -> TaskRows:
    """Check, label and sample the rows of a task's two splits; the labels' names are taken from all
    training rows.
    """
    label, sources = task.columns.label or "", (train, validation)
    known = task.labels or train.class_names.get(label)
    for source in sources:
        own = source.class_names.get(label)
        if own and known and {*own} != {*known}:
            raise DataError(
                f"{source.origin} names the classes of '{label}' {joined(own)} where "
                f"{'the task' if task.labels else train.origin} names them {joined(known)}: give "
                "the same names everywhere, in any order"
            )
    read = {"mlm": _running_text, "causal": _running_text, "words": _words}.get(task.kind, _texts)
    tables, names, warnings = read(task, sources, known)
    if task.metric == "f1" and names and len(names) != 2:
        raise DataError(
            f"{train.origin}: metric f1 needs two classes, and '{label}' has {len(names)} "
            f"({joined(names)}): score them with metric accuracy"
        )
    for at, limit in enumerate((task.train_rows, task.validation_rows)):
        chosen = sampled_rows(len(tables[at]), limit, task.sample_seed)
        tables[at] = tables[at].take(pa.array(chosen))
        if task.kind == "similarity":
            tables[at] = _one_by_one(tables[at])
    if names:
        declared = task.kind == "words" or bool(task.labels)
        flat = pc.list_flatten if task.kind == "words" else lambda labels: labels
        classes = [flat(table["label"]).to_numpy() for table in tables]
        warnings += label_warnings(classes, names, declared)
    return TaskRows(tables[0], tables[1], names, warnings)


def _one_by_one(pairs: pa.Table) -> pa.Table:
    """The two texts of each pair as two rows, one after the other, both with the pair's label."""
    texts = zip(pairs["text"].to_pylist(), pairs["text_pair"].to_pylist(), strict=True)
    both = pa.array([text for pair in texts for text in pair], pa.large_string())
    return pa.table({"text": both, "label": np.repeat(pairs["label"].to_numpy(), 2)})


def _running_text(
    task: TaskSpec, sources: Sequence[SourceTable], known: Sequence[str] | None
) -> Labelled:
    """Blank rows are dropped, headings stay."""
    tables = []
    for source in sources:
        text = pc.utf8_trim_whitespace(text_column(source, task.columns.text))
        kept = text.filter(pc.not_equal(text, ""))
        if len(text) and not len(kept):
            raise DataError(f"{source.origin}: every '{task.columns.text}' is blank: give text")
        tables.append(pa.table({"text": kept}))
    return tables, None, []


def _texts(task: TaskSpec, sources: Sequence[SourceTable], known: Sequence[str] | None) -> Labelled:
    texts = {"text": task.columns.text}
    if task.kind != "text":
        texts["text_pair"] = task.columns.text_pair
    tables = [
        pa.table({name: text_column(source, column) for name, column in texts.items()})
        for source in sources
    ]
    names: tuple[str, ...] | None = None
    warnings: list[str] = []
    if (name := task.columns.label) is None:
        # Texts on which a model is compared with itself all have the label 0.
        labels = [np.zeros(len(table), np.int64) for table in tables]
    else:
        sides = [
            LabelColumn(one.column(name).to_pylist(), range(len(one.rows)), one.origin, name)
            for one in sources
        ]
        if task.regression:
            labels = [to_numbers(side) for side in sides]
        else:
            sides = [
                side.named(source.class_names.get(name))
                for side, source in zip(sides, sources, strict=True)
            ]
            if task.labels:
                kept = [decided(side, task.labels) for side in sides]
                left = [len(table) - len(rows) for table, rows in zip(tables, kept, strict=True)]
                if any(left):
                    warnings.append(
                        f"{left[0]:,} training and {left[1]:,} validation rows without agreement "
                        "(- or -1) are left out, as the task's labels do not name it"
                    )
                    sides = [side.take(rows) for side, rows in zip(sides, kept, strict=True)]
                    tables = [table.take(rows) for table, rows in zip(tables, kept, strict=True)]
            labels, names = to_classes(sides, known)
    tables = [
        table.append_column("label", pa.array(label))
        for table, label in zip(tables, labels, strict=True)
    ]
    return tables, names, warnings


def _words(task: TaskSpec, sources: Sequence[SourceTable], known: Sequence[str] | None) -> Labelled:
    columns = task.columns
    assert columns.label is not None
    assert columns.words is not None
    words, sides = [], []
    for source in sources:
        row_words, row_tags = (
            _of_type(source, name, pa.types.is_large_list, "one list a row").to_pylist()
            for name in (columns.words, columns.label)
        )
        for row, (own, tags) in enumerate(zip(row_words, row_tags, strict=True), start=1):
            if len(own) != len(tags):
                raise DataError(
                    f"{source.origin}: row {row} has {len(own)} words in '{columns.words}' and "
                    f"{len(tags)} labels in '{columns.label}': give one label a word"
                )
            if not all(isinstance(word, str) for word in own):
                raise DataError(
                    f"{source.origin}: row {row} has {shortened(own)} in '{columns.words}', "
                    "not lists of words: set the task's columns to fit it"
                )
        row_of = [row for row, tags in enumerate(row_tags) for _ in tags]
        side = LabelColumn(list(chain(*row_tags)), row_of, source.origin, columns.label)
        side = side.named(source.class_names.get(columns.label))
        words.append(pa.array(row_words, pa.large_list(pa.large_string())))
        sides.append(to_iob2(side.named(known)) if task.metric == "entity_f1" else side)
    labels, names = to_classes(sides, known)
    lists = [
        pa.LargeListArray.from_arrays(own.offsets, pa.array(label))
        for own, label in zip(words, labels, strict=True)
    ]
    tables = [pa.table({"words": words[at], "label": own}) for at, own in enumerate(lists)]
    return tables, names, []


def text_column(source: SourceTable, name: str | None) -> pa.ChunkedArray:
    """The column of that name, which holds text."""
    return _of_type(source, name, pa.types.is_large_string, "text")


def _of_type(
    source: SourceTable, name: str | None, is_wanted: Callable[[pa.DataType], bool], wanted: str
) -> pa.ChunkedArray:
    assert name is not None
    column = source.column(name)
    if not is_wanted(column.type):
        kind = shortened(source.rows[name].type)
        raise DataError(
            f"{source.origin}: column '{name}' holds {kind}, not {wanted}: set the task's columns "
            "to fit it"
        )
    return column


def sampled_rows(count: int, rows: int | None, seed: int) -> np.ndarray:
    """The numbers of a sample of rows, drawn without repeats: int64 [min(rows, count)]; a smaller
    one of the same seed is the start of a larger one, and all rows keep their own order.
    """
    if rows is None or rows >= count:
        return np.arange(count)
    return np.random.default_rng(seed).permutation(count)[:rows]
