"""How busy the workers of a study are: named entities (WNUT-17) as a user runs it, on two workers.

A worker is busy while it computes a step. What counts lies between the first step's begin and the
last one's end: starting Prefect, Ray and MLflow has rows of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.pipeline import new_store, papa
from benchmarks.rows import Row
from benchmarks.setting import TASKS, task_entry
from benchmarks.timing import Comparison, repeated
from papa.encoders.reference import EMBEDDED
from papa.spec.document import write_yaml
from papa.storage.metadata import METADATA

WORKERS, TRAIN_ROWS, VALIDATION_ROWS = 2, 400, 150
TARGET = 0.9


def busy(store: Path) -> float:
    """The share of the workers' time that steps took, by what artifacts in a store record."""
    spans = []
    for path in store.glob(f"artifacts/*/*/{METADATA}"):
        found = json.loads(path.read_text())
        if "worker_seconds" in found:
            ended = path.stat().st_mtime
            # The shards of an average count their own time alone.
            clock = "worker_seconds" if found["stage"] == "average" else "seconds"
            spans.append((ended - found["seconds"], ended, found[clock]))
    wall = max(end for _, end, _ in spans) - min(begin for begin, _, _ in spans)
    return sum(own for _, _, own in spans) / (WORKERS * wall)


def study(folder: Path) -> float:
    """Run the study on a new store; how busy its workers were."""
    sizes = {"train_rows": TRAIN_ROWS, "validation_rows": VALIDATION_ROWS}
    task = {**task_entry(TASKS["wnut"]["name"]), **TASKS["wnut"], **sizes}
    store = new_store(folder)
    path = folder / f"{store.name}.yaml"
    path.write_text(write_yaml({"name": "busy", "encoders": [EMBEDDED], "tasks": [task]}))
    papa("run", str(path), "--store", str(store), "--workers", str(WORKERS))
    return busy(store)


def busy_rows(folder: Path) -> Iterator[Row]:
    """A share of the time against all of it."""

    def of_means(ours: np.ndarray, plain: np.ndarray, axis: int = -1) -> np.ndarray:
        # Neighbours make a share larger or smaller: its least is not the truest.
        return plain.mean(axis=axis) / ours.mean(axis=axis)

    def measure() -> Comparison:
        return repeated(lambda: (1.0, study(folder)), ratio=of_means, unit="of the time")

    name = f"named entities, {WORKERS} workers: the share of their time that is work"
    yield Row("busy", name, TARGET, measure, on_request=True)
