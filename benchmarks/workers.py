"""One study with one worker and with two: how long each takes, and how busy the workers are.

``python -m benchmarks.workers`` runs a named-entity study (one ranking seed, five fractions, three
probe seeds) twice, each time in a new store, in about eight minutes on two quiet cores. A worker's
busy seconds are the processor time of its steps, in all threads. They are divided by the time from
the end of tokenising to the end of the last cell: what begins and ends a run is no worker's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.setting import TASKS, task_entry
from benchmarks.timing import seconds
from papa.models.reference import EMBEDDED

WORKERS = (1, 2)
STUDY: dict[str, Any] = {
    "name": "entities",
    "encoders": [EMBEDDED],
    "substitutes": ["average"],
    "orders": ["lambda"],
    "keep": [1, 0.5, 0.125, 0.0625, 0],
    "probe_seeds": [0, 1, 2],
    "ranking_seeds": [0],
    # So that an average has as many shards as over a text of thousands of rows.
    "execution": {"shard_rows": 128},
}
ROWS = {"train_rows": 800, "validation_rows": 320}
NOT_ON_WORKERS = ("tokenise", "aggregate")


@dataclass(frozen=True)
class StudyTimes:
    """Times of one run, in seconds.

    Attributes:
        whole: Of the command.
        steps: From the end of tokenising to the end of the last step on a worker.
        busy: Processor time of all steps on workers.
    """

    whole: float
    steps: float
    busy: float


def run_study(folder: Path, workers: int) -> StudyTimes:
    """Run the study in a new store with so many workers."""
    path = folder / "entities.yaml"
    task = {**task_entry("wnut17"), "slots": TASKS["wnut"]["slots"], **ROWS}
    path.write_text(yaml.safe_dump({**STUDY, "tasks": [task]}))
    store = folder / f"store-{workers}"
    papa = str(Path(sys.executable).parent / "papa")
    command = [papa, "run", str(path), "--store", str(store), "--workers", str(workers)]
    whole = seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    tokenised = [ended for stage, ended, _ in _steps(store) if stage == "tokenise"]
    on_workers = [step for step in _steps(store) if step[0] not in NOT_ON_WORKERS]
    return StudyTimes(
        whole=whole,
        steps=max(ended for _, ended, _ in on_workers) - max(tokenised),
        busy=sum(busy for _, _, busy in on_workers),
    )


def _steps(store: Path) -> Iterator[tuple[str, float, float]]:
    """Yield the stage of each step, when it ended, and its seconds of processors."""
    for path in store.glob("artifacts/*/*/metadata.json"):
        metadata = json.loads(path.read_text())
        yield metadata["stage"], path.stat().st_mtime, metadata["worker_seconds"]


def main() -> None:
    """Run the study with each number of workers, and print what it took."""
    times: dict[int, StudyTimes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for workers in WORKERS:
            times[workers] = run_study(Path(folder), workers)
            run = times[workers]
            print(
                f"workers {workers}: whole run {run.whole:.1f} s, steps {run.steps:.1f} s, "
                f"busy {run.busy / (workers * run.steps):.0%} of workers × time",
                flush=True,
            )
    one, two = (times[workers] for workers in WORKERS)
    print(f"ratio of the steps' times {one.steps / two.steps:.2f}")
    print(f"ratio of the whole runs' times {one.whole / two.whole:.2f}")


if __name__ == "__main__":
    main()
