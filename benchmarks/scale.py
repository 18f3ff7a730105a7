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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.stand_ins import StandInPool
from flows.check import check_study
from flows.plan import PlannedStep, bound
from papa.encoders.reference import EMBEDDED
from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.study.step import Step
from papa.study.store import Store

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
    from flows.environment import prepare_environment
    from flows.server import OwnServer

    store = Store(folder / "store")
    store.make()
    prepare_environment(store)
    server = OwnServer(store)
    waits = {"probe": seconds, "baseline": seconds, "rank": seconds, "shard": seconds / 10}
    with (
        StandInPool(workers, waits, folder) as pool,
        (folder / "progress.log").open("w", buffering=1) as log,
    ):
        pool.begin()
        server.wait()
        from flows.progress import StudyProgress
        from flows.startup import ReadyStudy, live_runs
        from flows.study import study_flow

        first = 0
        for count in counts:
            spec = study(range(first, first + count), shards, folder)
            first += count
            steps = check_study(spec, store).steps
            progress = StudyProgress(lambda line: print(line, file=log))
            live = live_runs(steps, store, progress)
            live.begin()
            ready = ReadyStudy(spec, steps, store, pool, progress, live)
            processes = {"driver": psutil.Process(), "Prefect": psutil.Process(server.process.pid)}
            before, started = (
                {name: cpu(process) for name, process in processes.items()},
                time.monotonic(),
            )
            with live:
                study_flow(ready)(study="none.yaml")
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
                "planned s": planned(steps.steps, waits, workers, shards),
                **stages(store),
            }


def planned(steps: Sequence[Step], waits: Mapping[str, float], workers: int, shards: int) -> float:
    """The least that ``papa plan`` expects until the last cell, in seconds after the first text is
    tokenised.
    """
    seconds = {**waits, "average": shards * waits["shard"]}
    return bound(
        [PlannedStep(step, False, seconds.get(step.stage, 0.0)) for step in steps]
    ).seconds(workers)


def stages(store: Store) -> dict[str, float]:
    """When its stages ended, in seconds after its first artifact."""
    ends = {}
    for stage in ("tokenise", "average", "rank", "probe", "aggregate", "track"):
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
