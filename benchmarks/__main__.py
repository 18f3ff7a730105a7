"""``make bench``: everything that docs/performance.md claims, measured in one run."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.document import written
from benchmarks.heads import head_rows
from benchmarks.measure import Measured
from benchmarks.memory import memory_rows
from benchmarks.pipeline import pipeline_rows
from benchmarks.roofline import roofline_rows
from benchmarks.setting import DATA, setting
from benchmarks.stages import stage_rows
from benchmarks.workers import worker_rows

THREADS = 2
ROWS = {"cola": 400, "ud": 240, "rte": 120}


def rows(folder: Path) -> Iterator[Measured]:
    """Every measurement, cheapest first."""
    settings = {name: setting(name, count, folder) for name, count in ROWS.items()}
    yield from head_rows()
    yield from roofline_rows(settings, folder)
    yield from stage_rows(settings, folder)
    yield from memory_rows(folder)
    yield from worker_rows(settings["ud"], settings["rte"], folder)
    yield from pipeline_rows(folder)


def write(found: list[Measured]) -> None:
    """Put what is measured so far into ``benchmarks/latest.json``."""
    machine = {
        "threads": THREADS,
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    document = {"machine": machine, "rows": [asdict(row) for row in found]}
    (Path(__file__).parent / "latest.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Measure; write ``benchmarks/latest.json`` and the table in docs/performance.md."""
    if not DATA.is_dir():
        raise SystemExit(f"the benchmarks read real corpora from {DATA}, which is not there")
    torch.set_num_threads(THREADS)
    console, found = Console(), list[Measured]()
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder)):
            found.append(row)
            write(found)
            console.print(f"{row.name}: {row.ratio:.2f} (target {row.target:.2f})")
    below = [row for row in found if row.ratio < row.target]
    machine = f"{os.cpu_count()} cores, {THREADS} threads, no GPU, torch {torch.__version__}."
    written(found, f"{machine} {len(found) - len(below)} of {len(found)} rows reach their target.")


if __name__ == "__main__":
    main()
