"""What Prefect, Ray and MLflow cost around the work: starting, and a study of one cell as a whole,
against limits in seconds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from benchmarks.timing import Comparison, Row, repeated, seconds
from papa.encoders.reference import EMBEDDED

ROWS = {"train_rows": 16, "validation_rows": 8}
STUDY = {
    "name": "benchmark",
    "encoders": [EMBEDDED],
    "tasks": [{"name": "reviews", "slots": 16, **ROWS, "probe": {"epochs": 1}}],
    "constants": ["identity"],
    "orders": ["first_to_last"],
    "fractions": [0.5],
    "seeds": [0],
}


def papa(*arguments: str) -> float:
    """How many seconds a command takes."""
    command = [str(Path(sys.executable).parent / "papa"), *arguments]
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def run_study(store: Path) -> float:
    """How many seconds ``papa run`` takes on one worker."""
    path = store.parent / "study.yaml"
    path.write_text(yaml.safe_dump(STUDY))
    return papa("run", str(path), "--store", str(store), "--workers", "1")


def cached(folder: Path) -> Comparison:
    """A study that is there already."""
    store = folder / "cached"
    run_study(store)
    return repeated(lambda: (run_study(store), 6.0))


def pipeline_rows(folder: Path) -> Iterator[Row]:
    """Seconds against the limits."""
    yield Row("start", "papa --help", lambda: repeated(lambda: (papa("--help"), 0.5)))

    def new() -> tuple[float, float]:
        return run_study(Path(tempfile.mkdtemp(dir=folder)) / "store"), 12.0

    yield Row("start", "a study of one cell, whole run", lambda: repeated(new))
    yield Row("start", "the same study, all cached", lambda: cached(folder))
