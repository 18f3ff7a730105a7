"""What a task's source holds, before anything is computed: local and small files are read, of large
ones on the hub only the ends, which tell columns and classes, not single labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from papa.corpora.hub import HubSplit, split_of
from papa.corpora.rows import labelled, rows_of
from papa.corpora.sources import SPLITS, Split, read_source
from papa.corpora.table import SourceTable
from papa.errors import DataError, nearest_first
from papa.spec import HubSource, TaskSpec

SMALL_BYTES = 8_000_000
"""What a look at a task downloads at most."""


@dataclass(frozen=True)
class Preview:
    """What a task's source holds, as far as it was read.

    Attributes:
        rows: of the training and the validation split, as many as the task takes; None where
            nothing says how many.
        label_names: the classes; None for regression, masked language models, and where only the
            rows have them.
        unchecked: what was not read; None where all was.
        warnings: what a reader of scores must know of the rows (``TaskRows.notes``).
    """

    rows: tuple[int, int] | None
    label_names: tuple[str, ...] | None
    unchecked: str | None = None
    warnings: Sequence[str] = field(default=(), compare=False)


def preview(task: TaskSpec) -> tuple[Preview | None, list[DataError]]:
    """Look at a task's source: what was found, None where it is not fit for use, and all that is
    wrong with it.
    """
    problems: list[DataError] = []
    tables: dict[Split, SourceTable] = {}
    counts: dict[Split, int] = {}
    unchecked: list[str] = []
    far = _far(task, problems)
    if problems:
        return None, problems
    for split in SPLITS:
        try:
            if split not in far:
                tables[split] = read_source(task, split)
                counts[split] = tables[split].rows.num_rows
            elif (found := far[split].look()) is not None:
                tables[split], counts[split] = found
        except DataError as error:
            problems.append(error)
    if far:
        size = sum(split.bytes_to_fetch for split in far.values()) / 1e6
        unchecked.append(
            f"{'single labels' if tables else 'columns and labels'} ({size:.0f} MB are not "
            "downloaded yet)"
        )
    for name in filter(None, task.columns.model_dump().values()):
        lacking = [table for table in tables.values() if name not in table.rows.column_names]
        if lacking:
            where = " and ".join(table.origin for table in lacking)
            existing = nearest_first(name, lacking[0].rows.column_names)
            problems.append(
                DataError(
                    f"{where}: no column '{name}' (found: {existing}): set the task's columns to "
                    "fit it"
                )
            )
    if problems or len(tables) < len(SPLITS):
        return (None, problems) if problems else (Preview(None, task.labels, unchecked[0]), [])
    try:
        if far:
            names = labelled(task, tables["train"], tables["validation"])[1] or None
            limits = (task.train_rows, task.validation_rows)
            rows = tuple(
                min(counts[split], most or counts[split])
                for split, most in zip(SPLITS, limits, strict=True)
            )
            return Preview((rows[0], rows[1]), names, unchecked[0]), []
        found_rows = rows_of(task, tables["train"], tables["validation"])
    except DataError as error:
        return None, [error]
    train, validation = found_rows.train, found_rows.validation
    counted, said = (train.num_rows, validation.num_rows), found_rows.notes.get("warnings", ())
    return Preview(counted, found_rows.label_names, warnings=said), []


def _far(task: TaskSpec, problems: list[DataError]) -> dict[Split, HubSplit]:
    """The splits on the hub, where they are too large for a look."""
    source = task.source
    if not isinstance(source, HubSource):
        return {}
    splits: dict[Split, HubSplit] = {}
    for split, name in (("train", source.train), ("validation", source.validation)):
        try:
            splits[split] = split_of(source, name)  # type: ignore[index]
        except DataError as error:
            if str(error) not in map(str, problems):
                problems.append(error)
    large = sum(split.bytes_to_fetch for split in splits.values()) > SMALL_BYTES
    return splits if large else {}
