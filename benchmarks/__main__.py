"""``make bench``: what docs/performance.md claims, measured row by row into ``measured.md``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks.memory import memory_rows
from benchmarks.pipeline import pipeline_rows
from benchmarks.stages import stage_rows
from benchmarks.timing import Comparison, Row

PAGE = Path(__file__).with_name("measured.md")
BEGIN, END = "<!-- rows -->\n", "\n<!-- /rows -->"


def selected(rows: Sequence[Row], words: Iterable[str]) -> list[Row]:
    """The rows asked for by their group or a part of their name; without words all."""
    words = [word.strip().lower().replace("lambda", "λ") for word in words]
    texts = {f"{row.group}, {row.name}".lower(): row for row in rows}
    return [row for text, row in texts.items() if any(word in text for word in words)]


def line(row: Row, found: Comparison) -> str:
    """A row of the table."""
    cells = (
        row.name,
        f"{found.ours:.3g} {found.unit}",
        f"{found.plain:.3g} {found.unit}",
        f"{found.ratio:.2f}",
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
        rows = [*stage_rows(place), *memory_rows(place), *pipeline_rows(place)]
        groups = ", ".join(dict.fromkeys(row.group for row in rows))
        parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
        parser.add_argument("--rows", default="", help=f"some of {groups}, or parts of rows' names")
        asked, failed = selected(rows, parser.parse_args().rows.split(",")), 0
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
