"""What a task's source holds, before anything is computed; what is large is not downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from papa.corpora.hub import split_of
from papa.corpora.rows import rows_of
from papa.corpora.sources import SPLITS, read_source
from papa.spec import HubSource, TaskSpec

LARGE_BYTES = 100_000_000
"""More than what a look at a task downloads: all of the paper's tasks are smaller."""


@dataclass(frozen=True)
class Preview:
    """What a task's source holds, as far as it was read.

    Attributes:
        rows: of the training and the validation split; None where they were not read.
        label_names: the classes, where there are some.
        unchecked: what was not read; None where all was.
        warnings: what a reader of scores must know of the rows (``TaskRows``).
    """

    rows: tuple[int, int] | None
    label_names: tuple[str, ...] | None
    unchecked: str | None = None
    warnings: Sequence[str] = field(default=(), compare=False)


def preview(task: TaskSpec) -> Preview:
    """Look at a task's source; a DataError says where it is not fit for use."""
    if isinstance(source := task.source, HubSource):
        size = sum(split_of(source, getattr(source, split)).bytes_to_fetch for split in SPLITS)
        if size > LARGE_BYTES:
            unchecked = f"columns and labels ({size / 1e6:.0f} MB are not downloaded yet)"
            return Preview(None, task.labels, unchecked)
    rows = rows_of(task, read_source(task, "train"), read_source(task, "validation"))
    counted = rows.train.num_rows, rows.validation.num_rows
    return Preview(counted, rows.label_names, warnings=rows.warnings)
