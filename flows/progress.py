"""Progress of a running study: a bar in a terminal, and lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.filesize import pick_unit_and_suffix
from tqdm import tqdm

from papa.errors import printable
from papa.progress import Progress

_NOTE_SECONDS = 60.0
"""Least time between two notes that say how much of a step is done."""


class StudyProgress:
    """Shows how far a study's ``steps`` are; ``log`` takes the lines as well. Thread-safe."""

    def __init__(self, steps: int, *, shown: bool = False) -> None:
        self.steps = steps
        self.shown = shown
        self.log: Callable[[str], object] = lambda _: None
        hidden = not (shown and sys.stderr.isatty())
        self.bar = tqdm(desc="study", total=steps, unit="step", leave=False, disable=hidden)
        self._finished: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    @property
    def saved(self) -> str:
        """How many steps are finished, in words."""
        return f"{sum(self._finished.values())} of {self.steps} steps are kept"

    @contextmanager
    def running(self, name: str) -> Iterator[Progress]:
        """Show a step as running once a worker started it, and how much of it is done, while the
        block runs.
        """
        started = 0.0
        noted = 0.0

        def report(done: int, total: int) -> None:
            nonlocal started, noted
            now = time.monotonic()
            if not started:
                started = noted = now
                self.note(name, "started")
            elif 0 < done < total and now - noted >= _NOTE_SECONDS:
                noted = now
                self.note(name, f"{done / total:.0%} done")

        yield report
        if started:
            self._seconds[name] = time.monotonic() - started

    def finished(self, name: str, computed: bool, steps: int = 1) -> None:
        """Count a step as done, or as cached; or so many that ran together."""
        self._finished[name] = steps
        self.bar.update(steps)
        seconds = self._seconds.get(name) if computed else None
        self.note(name, "already there" if seconds is None else f"done in {duration(seconds)}")

    def note(self, name: str, sentence: str) -> None:
        """Print a note about a step, or about the study."""
        done = sum(self._finished.values()) / self.steps
        line = printable(f"{name}: {sentence} | study {done:.0%}")
        self.log(line)
        if self.shown:
            # In one piece: a run that ends says so from another thread.
            self.bar.write(f"{line}\n", file=sys.stderr, end="")


def duration(seconds: float) -> str:
    """Return a duration in words: "42 s", "3 min", "2.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def size_label(size: int) -> str:
    """Return a number of bytes in units of 1024, as du and ls show it: "812 B", "3.4 MiB"."""
    unit, label = pick_unit_and_suffix(size, ["B", "KiB", "MiB", "GiB", "TiB"], 1024)
    return f"{size / unit:.1f} {label}" if unit > 1 else f"{size} B"
