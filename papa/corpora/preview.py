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
    problems: dict[str, DataError] = {}
    far: dict[Split, HubSplit] = {}
    tables: dict[Split, SourceTable] = {}
    counts: dict[Split, int] = {}
    source = task.source
    if isinstance(source, HubSource):
        for split in SPLITS:
            try:
                far[split] = split_of(source, getattr(source, split))
            except DataError as error:
                problems[str(error)] = error
    size = sum(split.bytes_to_fetch for split in far.values())
    for split in SPLITS if not problems else ():
        try:
            if size <= SMALL_BYTES:
                tables[split] = read_source(task, split)
                counts[split] = tables[split].rows.num_rows
            elif (found := far[split].look()) is not None:
                tables[split], counts[split] = found
        except DataError as error:
            problems[str(error)] = error
    for name in filter(None, task.columns.model_dump().values()):
        lacking = [table for table in tables.values() if name not in table.rows.column_names]
        if lacking:
            where = " and ".join(table.origin for table in lacking)
            existing = nearest_first(name, lacking[0].rows.column_names)
            said = (
                f"{where}: no column '{name}' (found: {existing}): set the task's columns to fit it"
            )
            problems[said] = DataError(said)
    if problems:
        return None, list(problems.values())
    what = "single labels" if tables else "columns and labels"
    unchecked = f"{what} ({size / 1e6:.0f} MB are not downloaded yet)"
    try:
        if len(tables) < len(SPLITS):
            return Preview(None, task.labels, unchecked), []
        if size > SMALL_BYTES:
            names = labelled(task, tables["train"], tables["validation"])[1] or None
            train, validation = (
                min(counts[split], getattr(task, f"{split}_rows") or counts[split])
                for split in SPLITS
            )
            return Preview((train, validation), names, unchecked), []
        rows = rows_of(task, tables["train"], tables["validation"])
    except DataError as error:
        return None, [error]
    counted = rows.train.num_rows, rows.validation.num_rows
    return Preview(counted, rows.label_names, warnings=rows.notes.get("warnings", ())), []
