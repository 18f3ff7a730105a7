"""Large studies: what each further cell costs around its own work, with workers that wait instead
of computing.

``python -m benchmarks.scale`` runs studies of 100, 100 (the first warms up) and 2,000 cells on 64
stand-ins. Seconds of processors are those of the driver and of Prefect's server alone, so that
other processes count less.
"""

from __future__ import annotations

import argparse
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

CELLS_OF_A_TASK = 100
WHOLE = {
    "constants": ["average", "identity", "toeplitz", "zeros"],
    "orders": ["lambda", "lambda_reversed", "first_to_last", "last_to_first", "random"],
    "fractions": [0.8, 0.6, 0.4, 0.2, 0.1],
}


def study(numbers: Sequence[int], shards: int, folder: Path) -> StudySpec:
    """A study of 100 cells for each of some tasks, whose text has so many shards."""
    task = {
        "kind": "text",
        "source": {"kind": "embedded"},
        "columns": {"text": "text", "label": "label"},
        "labels": ["negative", "positive"],
        "metric": "accuracy",
        "slots": 16,
        "train_rows": shards,
        "validation_rows": 32,
        "probe": {"learning_rate": 5e-4, "batch_size": 32, "epochs": 1},
    }
    document = {
        "name": f"tasks-from-{numbers[0]}",
        "encoders": [EMBEDDED],
        "tasks": [
            {"name": f"reviews-{number}", "sample_seed": number, **task} for number in numbers
        ],
        **WHOLE,
        "seeds": [0],
        "execution": {"shard_rows": 1},
    }
    return resolve_study(document, folder=folder, origin="benchmarks")


def run(
    counts: Sequence[int], shards: int, workers: int, seconds: float, folder: Path
) -> Iterator[dict[str, Any]]:
    """Run studies of so many tasks, of 100 cells each, one after the other; what each took. A
    stand-in waits ``seconds`` for a cell and a tenth of it for a shard.
    """
    from flows.server import prepare_engines, start_server

    store = Store(folder / "store")
    store.make()
    prepare_engines(store.root, verbose=False)
    wait_for_server = start_server()
    waits = {"probe": seconds, "baseline": seconds, "rank": seconds, "shard": seconds / 10}
    with StandInPool(workers, waits, folder) as pool:
        pool.begin()
        wait_for_server()
        from flows import study as of_study
        from flows.progress import StudyProgress

        # The flow takes these workers for its own.
        of_study.WorkerPool = lambda *_, **__: nullcontext(pool)  # type: ignore[assignment,misc]
        first = 0
        for count in counts:
            spec = study(range(first, first + count), shards, folder)
            first += count
            checked = check_study(spec, store)
            steps = checked.steps
            progress = StudyProgress(len(steps.steps))
            of_study.ready.set(of_study.Ready(checked, store, progress))
            processes = {"driver": psutil.Process(), "Prefect": server_below()}
            before, started = (
                {name: cpu(process) for name, process in processes.items()},
                time.monotonic(),
            )
            of_study.run_study(study="none.yaml", return_state=True)
            cells, clock = len(steps.cells), time.monotonic() - started
            yield {
                "cells": cells,
                "steps": len(steps.steps),
                "workers": workers,
                "clock s per cell": clock / cells,
                **{
                    f"{name} CPU s per cell": (cpu(process) - before[name]) / cells
                    for name, process in processes.items()
                },
                "driver MB": processes["driver"].memory_info().rss / 1e6,
                **stages(store),
            }


def server_below() -> psutil.Process:
    """Prefect's server."""
    below = psutil.Process().children()
    return next(one for one in below if "prefect.server" in " ".join(one.cmdline()))


def stages(store: Store) -> dict[str, float]:
    """When its stages ended, in seconds after its first artifact."""
    ends = {}
    for stage in ("tokenise", "average", "rank", "probe", "aggregate"):
        files = (Path(store.artifacts) / stage).glob("*/metadata.json")
        ends[stage] = max(file.stat().st_mtime for file in files)
    return {f"{stage} ended": end - ends["tokenise"] for stage, end in ends.items()}


def cpu(process: psutil.Process) -> float:
    """Seconds of processors that a process used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Print what each study took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 1, 20])
    parser.add_argument("--shards", type=int, default=26)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for found in run(given.tasks, given.shards, given.workers, given.seconds, Path(folder)):
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
