"""How much text a study's tasks have, and what features of it take."""

from __future__ import annotations

from dataclasses import dataclass

from papa.corpora.corpus import RowTokens
from papa.corpora.sources import known_size
from papa.encoders.reference import EncoderReference
from papa.spec import FeaturesSpec, FilesSource, HubSource, TaskSpec

_VALUE_BYTES = {"float32": 4, "bfloat16": 2}
_SHARE_OF_SLOTS = 0.6
"""What a text's tokens take of its slots at most, where they were not counted."""
_ROWS = {"train": 10_000, "validation": 1_000}
"""Of a data set whose size nobody published."""


@dataclass(frozen=True)
class Size:
    """About how much text a task has: rows, and tokens of a row."""

    train: int
    validation: int
    tokens: float


def size_of(
    task: TaskSpec, counted: tuple[int, int] | None = None, tokens: RowTokens | None = None
) -> Size:
    """A task's size: as it was counted, else as it was published."""
    source = task.source
    known = known_size(source) if isinstance(source, HubSource) else None
    rows = counted or [
        min(limit or most, most)
        for limit, most in (
            (task.train_rows, _rows(task, known, "train")),
            (task.validation_rows, _rows(task, known, "validation")),
        )
    ]
    mean = min(known["tokens"], task.slots) if known else _SHARE_OF_SLOTS * task.slots
    return Size(rows[0], rows[1], tokens.all if tokens else mean)


def _rows(task: TaskSpec, known: dict[str, int] | None, split: str) -> int:
    if isinstance(task.source, FilesSource):
        path = task.source.train if split == "train" else task.source.validation
        with path.open("rb") as file:
            return max(1, sum(1 for _ in file))
    return (known or _ROWS)[split]


def feature_bytes(encoder: EncoderReference, size: Size, features: FeaturesSpec) -> float:
    """What one cell's features take on the disk."""
    values = (size.train + size.validation) * size.tokens * (encoder.layers + 1) * encoder.width
    return values * _VALUE_BYTES[features.dtype]
