"""``make bench``: everything that docs/performance.md claims, measured row by row."""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks.busy import busy_rows
from benchmarks.document import PAGE, RECORD, known, record
from benchmarks.heads import head_rows
from benchmarks.memory import memory_rows
from benchmarks.pipeline import pipeline_rows
from benchmarks.roofline import roofline_rows
from benchmarks.rows import LeftOut, Row, measured, selected
from benchmarks.stages import stage_rows

THREADS = 2
UNKNOWN_SECONDS = 20.0
"""What a row is taken to need that was never measured."""


def all_rows(folder: Path) -> Iterator[Row]:
    """Every row of the table, in its order; the rows write into ``folder``."""
    yield from head_rows()
    yield from roofline_rows(folder)
    yield from stage_rows(folder)
    yield from memory_rows(folder)
    yield from busy_rows(folder)
    yield from pipeline_rows(folder)


def run(rows: list[Row], names: list[str]) -> int:
    """Measure rows and record each among the table's ``names``; one that fails is said and the
    others go on. Returns how many failed.
    """
    failed, before, started = 0, known(), time.perf_counter()
    needed = [before[row.name].spent if row.name in before else UNKNOWN_SECONDS for row in rows]
    for number, row in enumerate(rows):
        pace = (time.perf_counter() - started) / sum(needed[:number]) if number else 1.0
        left = math.ceil(pace * sum(needed[number:]) / 60)
        print(f"{number + 1} of {len(rows)}, about {left} min left: {row.name}", flush=True)
        try:
            found = measured(row)
        except LeftOut as left_out:
            print(f"    left out: {left_out}")
        except Exception as error:
            failed += 1
            print(f"    failed: {sentence(error)}")
        else:
            record(found, names)
            interval = f"{found.low:.2f} to {found.high:.2f}"
            print(
                f"    {found.ratio:.2f} ({interval}), target {row.target:.2f}: {found.verdict}",
                flush=True,
            )
    return failed


def sentence(error: Exception) -> str:
    """What went wrong, in a line: of a process, the last that it said."""
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = (said.decode() if isinstance(said, bytes) else said or "").strip().splitlines() or [""]
    return (
        f"{type(error).__name__}: "
        f"{lines[-1 if isinstance(error, subprocess.CalledProcessError) else 0]}"
    )


def main() -> int:
    """Measure what is asked for; the number of rows that failed decides the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        rows = list(all_rows(Path(folder)))
        groups = ", ".join(
            dict.fromkeys(f"{row.group}*" if row.on_request else row.group for row in rows)
        )
        parser = argparse.ArgumentParser(
            prog="python -m benchmarks",
            description=(
                "Times PAPA against plain ways of the same work, and writes what it finds into "
                f"{PAGE.name} and {RECORD.name}. A whole run takes 15 to 30 minutes on two cores. "
                "It may run beside other work: that makes intervals wider and the run longer."
            ),
        )
        parser.add_argument(
            "--rows",
            default="",
            metavar="NAMES",
            help=(
                "measure these alone and leave the others as they are, such as λ,features. Names "
                f"are {groups}, or parts of a row's name. Those with a star take long and run only "
                "when asked for."
            ),
        )
        words = [word for word in parser.parse_args().rows.split(",") if word.strip()]
        try:
            asked = selected(rows, words)
        except ValueError as unknown:
            parser.error(str(unknown))
        torch.set_num_threads(THREADS)
        disable_progress_bar()
        return 1 if run(asked, [row.name for row in rows]) else 0


if __name__ == "__main__":
    sys.exit(main())
