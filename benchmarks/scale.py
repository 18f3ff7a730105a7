"""Large studies: what each further cell costs around its own work, with workers that wait instead of computing."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from papa.encoders.reference import EMBEDDED

CELLS_OF_A_TASK = 100
WHOLE = {
    "constants": ["average", "identity", "toeplitz", "zeros"],
    "orders": ["lambda", "lambda_reversed", "first_to_last", "last_to_first", "random"],
    "fractions": [0.8, 0.6, 0.4, 0.2, 0.1],
}


def study(tasks: int, shards: int) -> dict[str, Any]:
    """A study of 100 cells for each of some tasks, whose text has so many shards."""
    one = {
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
    return {
        "name": "large",
        "encoders": [EMBEDDED],
        "tasks": [{"name": f"reviews-{number}", "sample_seed": number, **one} for number in range(tasks)],
        **WHOLE,
        "seeds": [0],
        "execution": {"shard_rows": 1},
    }


def run(tasks: int, shards: int, workers: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Run such a study; seconds of processors by process and of the clock by stage.

    Args:
        tasks, shards: as of ``study``.
        workers: stand-ins.
        seconds: that each of them waits for a cell; a tenth for a shard.
        folder: new; for the store.
    """
    from papa.spec.file import resolve_study
    from tasks.store import Store

    spec = resolve_study(study(tasks, shards), folder=folder, origin="benchmarks")
    store = Store(folder / "store")
    store.make()
    clock = Clock()
    from flows.check import check_study

    checked = check_study(spec, store)
    clock.passed("check")
    from benchmarks.stand_ins import StandInPool
    from flows.environment import prepare_environment
    from flows.progress import StudyProgress
    from flows.server import start_own_server
    from flows.startup import ReadyStudy

    prepare_environment(store)
    server = start_own_server(store)
    waits = {"probe": seconds, "baseline": seconds, "rank": seconds, "shard": seconds / 10}
    lines = (folder / "progress.log").open("w")
    with StandInPool(workers, waits, folder) as pool:
        pool.begin()
        server.wait()
        from flows.study import study_flow

        clock.passed("start")
        ready = ReadyStudy(spec, checked.graph, store, pool, StudyProgress(lambda line: print(line, file=lines)))
        driver, prefect = psutil.Process(), psutil.Process(server.process.pid)
        before = [cpu(driver), cpu(prefect)]
        study_flow(ready)(study="large.yaml")
        clock.passed("study")
        spent = [cpu(driver) - before[0], cpu(prefect) - before[1]]
    return {
        "cells": len(checked.graph.cells),
        "steps": len(checked.graph.nodes),
        "workers": workers,
        "driver CPU s": spent[0],
        "Prefect CPU s": spent[1],
        "driver MB": driver.memory_info().rss / 1e6,
        **clock.spans,
    }


def cpu(process: psutil.Process) -> float:
    """Seconds of processors that a process used."""
    times = process.cpu_times()
    return float(times.user + times.system)


class Clock:
    """Seconds of the clock between what passed."""

    def __init__(self) -> None:
        self.spans: dict[str, float] = {}
        self._last = time.monotonic()

    def passed(self, what: str) -> None:
        now = time.monotonic()
        self.spans[what], self._last = now - self._last, now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(given.tasks, given.shards, given.workers, given.seconds, given.keep or Path(folder))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
