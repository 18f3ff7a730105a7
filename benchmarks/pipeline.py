"""What Prefect, Ray and MLflow cost around the work: a run as a whole, and each further cell."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import Measured, seconds
from papa.encoders.reference import EMBEDDED
from tasks.store import Store

FIXED_SECONDS, CELL_SECONDS = 25.0, 0.5
TINY = {
    "encoders": [EMBEDDED],
    "tasks": [{"name": "reviews", "train_rows": 64, "validation_rows": 32, "probe": {"epochs": 1}}],
    "seeds": [0],
}
ONE: dict[str, list[Any]] = {"constants": ["identity"], "orders": ["first_to_last"], "fractions": [0.5]}
MANY: dict[str, list[Any]] = {
    "constants": ["identity", "toeplitz", "zeros"],
    "orders": ["first_to_last", "last_to_first", "random"],
    "fractions": [0.75, 0.5, 0.25, 0.125],
}


def around(name: str, cells: Mapping[str, list[Any]], folder: Path) -> tuple[float, int]:
    """``papa run`` on one worker and a new store: its seconds without those of the cells' own work, and the cells."""
    path, store = folder / f"{name}.yaml", folder / f"{name}-store"
    path.write_text(yaml.safe_dump({"name": name, **TINY, **cells}))
    papa = Path(sys.executable).parent / "papa"
    command = [str(papa), "run", str(path), "--store", str(store), "--workers", "1"]
    spent = seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    own = [artifact["seconds"] for artifact in Store(store).metadata("probe")]
    assert len(own) == len(list(itertools.product(*cells.values())))
    return spent - sum(own), len(own)


def pipeline_rows(folder: Path) -> Iterator[Measured]:
    """Seconds against the limits."""
    fixed, one = around("one", ONE, folder)
    yield Measured("pipeline around the work, fixed cost", fixed, FIXED_SECONDS, FIXED_SECONDS / fixed, 1.0)
    more, many = around("many", MANY, folder)
    cell = max(more - fixed, 0.0) / (many - one)
    yield Measured("pipeline around the work, each cell", cell, CELL_SECONDS, CELL_SECONDS / max(cell, 1e-3), 1.0)
