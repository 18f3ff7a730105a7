"""Large studies: what each further cell costs around its own work, with 64 workers that wait half a
second for a cell and a tenth of it for a shard.

``python -m benchmarks.scale`` runs studies of 100, 100 (the first warms up) and 2,000 cells.
Seconds of processors are those of the driver and of Prefect's server alone, so that other processes
count less.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil

from benchmarks.stand_ins import StandInPool
from flows.check import check_study
from papa.encoders.reference import EMBEDDED
from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.storage.store import Store

TASKS, SHARDS, WORKERS = (1, 1, 20), 26, 64
WAITS = {"probe": 0.5, "baseline": 0.5, "rank": 0.5, "shard": 0.05}
WHOLE: dict[str, Any] = {
    "constants": ["average", "identity", "toeplitz", "zeros"],
    "orders": ["lambda", "lambda_reversed", "first_to_last", "last_to_first", "random"],
    "fractions": [0.8, 0.6, 0.4, 0.2, 0.1],
    "seeds": [0],
    "execution": {"shard_rows": 1},
}


def study(numbers: Sequence[int], folder: Path) -> StudySpec:
    """A study of 100 cells for each of some tasks, whose text has many shards."""
    probe = {"learning_rate": 5e-4, "batch_size": 32, "epochs": 1}
    rows = {"train_rows": SHARDS, "validation_rows": 32}
    task = {"base": "reviews", "slots": 16, **rows, "probe": probe}
    tasks = [{"name": f"reviews-{number}", "sample_seed": number, **task} for number in numbers]
    document = {"name": f"tasks-from-{numbers[0]}", "encoders": [EMBEDDED], "tasks": tasks, **WHOLE}
    return resolve_study(document, folder=folder, origin="benchmarks")


def run(folder: Path) -> Iterator[dict[str, Any]]:
    """Run the studies one after the other; what each took."""
    from flows.server import prepare_engines, start_server

    store = Store(folder / "store")
    store.make()
    prepare_engines(store.root, verbose=False)
    wait_for_server = start_server()
    with StandInPool(WORKERS, WAITS, folder) as pool:
        pool.begin()
        wait_for_server()
        from flows import study as of_study
        from flows.progress import StudyProgress

        # The flow takes these workers for its own.
        of_study.WorkerPool = lambda *_, **__: nullcontext(pool)  # type: ignore[assignment,misc]
        below = psutil.Process().children()
        server = next(one for one in below if "prefect.server" in " ".join(one.cmdline()))
        first = 0
        for count in TASKS:
            checked = check_study(study(range(first, first + count), folder), store)
            first += count
            progress = StudyProgress(len(checked.steps.steps))
            of_study.ready.set(of_study.Ready(checked, store, progress))
            before, started = (cpu(psutil.Process()), cpu(server)), time.monotonic()
            of_study.run_study(study="none.yaml", return_state=True)
            cells, clock = len(checked.steps.cells), time.monotonic() - started
            probes = (Path(store.artifacts) / "probe").glob("*/metadata.json")
            texts = (Path(store.artifacts) / "tokenise").glob("*/metadata.json")
            ended = [max(one.stat().st_mtime for one in files) for files in (texts, probes)]
            yield {
                "cells": cells,
                "clock s": clock,
                "cells ended, s after the last text": ended[1] - ended[0],
                "driver CPU s per cell": (cpu(psutil.Process()) - before[0]) / cells,
                "Prefect CPU s per cell": (cpu(server) - before[1]) / cells,
                "driver MB": psutil.Process().memory_info().rss / 1e6,
            }


def cpu(process: psutil.Process) -> float:
    """Seconds of processors that a process used."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for found in run(Path(folder)):
            print(json.dumps(found), flush=True)
