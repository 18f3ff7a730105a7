"""About how much work each stage is: operations from shapes and sizes, seconds from measured rates.

Good to a factor of two or so before anything has run; once a store holds finished artifacts of a stage, their
own seconds set the rate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from papa.encoders.reference import EncoderReference
from papa.spec import FilesSource, HubSource, RankingSpec, TaskSpec
from tasks.store import Store

_RATE = 2e10
"""Floating point operations a second that one core reaches, where nothing was measured."""
_TOKENISING_OPERATIONS = 1e5
_HUB_ROWS = {"train": 10_000, "validation": 1_000}
_BYTES_A_ROW = {"parquet": 60, "conll": 200}


@dataclass(frozen=True)
class Size:
    """About how much text a task has: rows of each split, and tokens a row."""

    train: int
    validation: int
    tokens: float


def size_of(task: TaskSpec) -> Size:
    """A task's size, from its specification and its source; no row is parsed."""
    rows = [
        min(limit or most, most)
        for limit, most in (
            (task.train_rows, _rows(task, "train")),
            (task.validation_rows, _rows(task, "validation")),
        )
    ]
    share, most = {"text": (0.4, 28), "pair": (0.45, 80), "words": (0.4, 28), "mlm": (0.6, 160)}[task.kind]
    return Size(rows[0], rows[1], min(share * task.slots, most))


def _rows(task: TaskSpec, split: str) -> int:
    match task.source:
        case FilesSource() as source:
            path = source.train if split == "train" else source.validation
            format = source.format or path.suffix.lstrip(".")
            bytes_a_row = _BYTES_A_ROW.get(format)
            if bytes_a_row:
                return max(1, path.stat().st_size // bytes_a_row)
            with path.open("rb") as file:
                return max(1, sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b"")))
        case HubSource():
            return _HUB_ROWS[split]
        case _:
            return {"train": 7_500, "validation": 1_000}[split]


def tokenising_flops(size: Size) -> float:
    return (size.train + size.validation) * size.tokens * _TOKENISING_OPERATIONS


def _forward_flops(encoder: EncoderReference, tokens: float) -> float:
    return 24 * encoder.layers * encoder.width**2 * tokens


def averaging_flops(encoder: EncoderReference, size: Size) -> float:
    """One pass over the training text."""
    return _forward_flops(encoder, size.train * size.tokens)


def ranking_flops(encoder: EncoderReference, size: Size, ranking: RankingSpec) -> float:
    """Forward and backward passes over the training text, for each epoch."""
    rows = min(ranking.rows or size.train, size.train)
    return 3 * ranking.epochs * _forward_flops(encoder, rows * size.tokens)


def probing_flops(encoder: EncoderReference, size: Size, task: TaskSpec, seeds: int) -> float:
    """One pass for the features, and every epoch of every seed's probe."""
    features = _forward_flops(encoder, (size.train + size.validation) * size.tokens)
    inputs = size.train * (size.tokens if task.kind in ("words", "mlm") else 1)
    probe = (encoder.layers + 1) * encoder.width**2
    pooled = (encoder.layers + 1) * encoder.width * (0 if task.kind in ("words", "mlm") else size.tokens)
    return features + 6 * seeds * task.probe.epochs * inputs * (probe + pooled)


def measured_rates(store: Store) -> dict[str, float]:
    """Operations a second that each stage reached, over the finished artifacts of a store."""
    rates = {}
    for stage in ("average", "rank", "probe"):
        work = seconds = 0.0
        for path in (store.artifacts / stage).glob("*/metadata.json"):
            try:
                metadata = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if metadata.get("seconds") and metadata.get("flops"):
                work += metadata["flops"]
                seconds += metadata["seconds"]
        if seconds:
            rates[stage] = work / seconds
    return rates


def seconds_of(stage: str, flops: float, rates: Mapping[str, float]) -> float:
    """About how long one worker needs."""
    return flops / rates.get(stage, _RATE)
