"""``make bench``: what docs/performance.md claims, measured row by row into ``measured.md``."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import torch
import yaml
from transformers.utils.logging import disable_progress_bar

from benchmarks.memory import memory_rows
from benchmarks.stages import stage_rows
from benchmarks.sweep import sweep_rows
from benchmarks.timing import Comparison, Row, repeated, seconds
from papa.models.reference import EMBEDDED

PAGE = Path(__file__).with_name("measured.md")
BEGIN = "<!-- rows -->\n"
END = "\n<!-- /rows -->"


ROWS = {"train_rows": 16, "validation_rows": 8}
STUDY = {
    "name": "benchmark",
    "encoders": [EMBEDDED],
    "tasks": [{"name": "reviews", "slots": 16, **ROWS, "probe": {"epochs": 1}}],
    "substitutes": ["identity"],
    "orders": ["first_to_last"],
    "keep": [0.5],
    "probe_seeds": [0],
}


def pipeline_rows(folder: Path) -> Iterator[Row]:
    """Yield what Prefect, Ray and MLflow cost around the work: starting, and a study of one cell as
    a whole, against limits in seconds.
    """

    def papa(*arguments: str) -> float:
        command = [str(Path(sys.executable).parent / "papa"), *arguments]
        return seconds(lambda: subprocess.run(command, check=True, capture_output=True))

    def study(limit: float, store: Path | None = None, workers: int = 1) -> tuple[float, float]:
        store = store or Path(tempfile.mkdtemp(dir=folder)) / "store"
        path = folder / "study.yaml"
        path.write_text(yaml.safe_dump(STUDY))
        return papa("run", str(path), "--store", str(store), "--workers", str(workers)), limit

    def two_workers() -> Comparison:
        return repeated(lambda: study(14.0, workers=2))

    def report_alone() -> Comparison:
        store = folder / "report"
        study(0.0, store)

        def run() -> tuple[float, float]:
            for written in ("artifacts/aggregate", "studies/benchmark"):
                shutil.rmtree(store / written)
            return study(8.0, store, workers=2)

        return repeated(run)

    def cached() -> Comparison:
        study(0.0, folder / "cached")
        return repeated(lambda: study(6.0, folder / "cached"))

    yield Row("start", "papa --help", lambda: repeated(lambda: (papa("--help"), 0.5)))
    yield Row("start", "a study of one cell, whole run", lambda: repeated(lambda: study(12.0)))
    yield Row("start", "a study of one cell, two workers, whole run", two_workers)
    yield Row("start", "the same study, all cached", cached)
    yield Row("start", "the same study, all cached but its report, two workers", report_alone)


def line(row: Row, found: Comparison) -> str:
    """Return a row of the table."""
    cells = (
        row.name,
        f"{found.ours:.3g} {found.unit}",
        f"{found.plain:.3g} {found.unit}",
        f"{found.plain / found.ours:.2f}",
        f"{found.low:.2f} to {found.high:.2f}",
        str(found.pairs),
        f"{date.today()}, torch {torch.__version__}, {torch.get_num_threads()} threads",
    )
    return f"| {' | '.join(cells)} |"


def record(name: str, text: str) -> None:
    """Put a row in its place in the page, or at the table's end."""
    before, rest = PAGE.read_text().split(BEGIN)
    table, after = rest.split(END)
    lines = [text if one.startswith(f"| {name} |") else one for one in table.splitlines()]
    lines += [] if text in lines else [text]
    PAGE.write_text(before + BEGIN + "\n".join(lines) + END + after)


def main() -> int:
    """Measure what is asked for; a row that fails is said, and the others go on."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = [
            *stage_rows(place),
            *sweep_rows(),
            *memory_rows(place),
            *pipeline_rows(place),
        ]
        groups = ", ".join(dict.fromkeys(row.group for row in rows))
        parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
        parser.add_argument("--rows", default="", help=f"some of {groups}, or parts of rows' names")
        words = parser.parse_args().rows.lower().replace("lambda", "λ").split(",")
        texts = {f"{row.group}, {row.name}".lower(): row for row in rows}
        asked = [row for text, row in texts.items() if any(word.strip() in text for word in words)]
        failed = 0
        if not asked:
            parser.error(f"no row is called so: ask for {groups}")
        torch.set_num_threads(2)
        disable_progress_bar()
        for number, row in enumerate(asked, 1):
            print(f"{number} of {len(asked)}: {row.name}", flush=True)
            try:
                text = line(row, row.measure())
            except Exception as error:
                failed += 1
                print(f"    failed: {error} {getattr(error, 'stderr', '')}")
            else:
                record(row.name, text)
                print(text, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
