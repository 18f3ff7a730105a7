"""Progress of a running study: the steps, how far each is, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from papa.progress import Progress as ReportProgress

_LINE_SECONDS = 15.0
_BAR_WIDTH = 12
_BESIDE_NAMES = 46
"""Columns of a terminal for the bar, the share, the time so far and the time left."""


class StudyProgress:
    """Shows a study's progress inside its block: bars in a terminal, lines elsewhere, which ``log``
    takes as well. Thread-safe.

    Attributes:
        steps: how many the study has.
        endings: what is to be done where the process is to end at once.
    """

    def __init__(self, output: Console | Callable[[str], object]) -> None:
        self.steps = 0
        self.log: Callable[[str], object] = lambda _: None
        self.endings: list[Callable[[], object]] = []
        self._lock = threading.RLock()
        self._bars: Progress | None = None
        self._print: Callable[[str], object]
        if isinstance(output, Console):
            self._bars = _bars(output) if output.is_terminal else None
            self._print = partial(output.print, markup=False, highlight=False, soft_wrap=True)
        else:
            self._print = output
        self._study: TaskID | None = None
        self._kept, self._ended = set[str](), 0
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> StudyProgress:
        if self._bars:
            self._bars.start()
            self._study = self._bars.add_task("study", total=self.steps)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars:
            self._bars.stop()

    @property
    def kept(self) -> str:
        """How many steps are finished, in words."""
        which = f"{len(self._kept)} of {self.steps}" if self.steps else "finished"
        return f"{which} steps are kept"

    @contextmanager
    def running(self, name: str) -> Iterator[ReportProgress]:
        """While the block runs, the step ``name`` is in progress; it is shown once a worker has
        started it.
        """
        started = last = 0.0
        bar: TaskID | None = None

        def report(done: int, total: int) -> None:
            nonlocal started, last, bar
            with self._lock:
                now = time.monotonic()
                if not started:
                    started = last = now
                    self._line(f"{name}: started")
                    if self._bars:
                        room = self._bars.console.width - _BESIDE_NAMES
                        bar = self._bars.add_task(shortened(name, room), total=1.0)
                share = min(1.0, done / total) if total else 0.0
                if self._bars and bar is not None:
                    self._bars.update(bar, completed=share)
                if now - last >= _LINE_SECONDS:
                    last = now
                    self._line(f"{name}: {share:.0%}")

        try:
            yield report
        finally:
            with self._lock:
                if self._bars and bar is not None:
                    self._bars.remove_task(bar)
                if started:
                    self._seconds[name] = time.monotonic() - started

    def finished(self, name: str, *, cached: bool) -> None:
        """A step is done, or was there already."""
        with self._lock:
            self._end()
            self._kept.add(name)
            seconds = None if cached else self._seconds.get(name)
            how = "already there" if seconds is None else f"done in {duration(seconds)}"
            self._say("[green]✓[/]", f"{name}: {how}")

    def failed(self, name: str, reason: str) -> None:
        """A step failed."""
        with self._lock:
            self._end()
            self._say("[red]✗[/]", f"{name}: failed: {reason}")

    def told(self, name: str, sentence: str) -> None:
        """There is something to know of a step."""
        self._say("[yellow]![/]", f"{name}: {sentence}")

    def noted(self, sentence: str) -> None:
        """Something worth knowing that is about no step."""
        self._say("[blue]·[/]", sentence)

    def _end(self) -> None:
        self._ended += 1
        if self._bars and self._study is not None:
            self._bars.advance(self._study)

    def _say(self, mark: str, text: str) -> None:
        with self._lock:
            if self._bars:
                self._bars.console.print(f"{mark} {escape(text)}")
            self._line(text)

    def _line(self, text: str) -> None:
        line = f"{text} | study {self._ended / max(1, self.steps):.0%}"
        self.log(line)
        if not self._bars:
            self._print(line)


def duration(seconds: float) -> str:
    """A duration in words: "42 s", "3 min", "2.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        BarColumn(bar_width=_BAR_WIDTH),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        expand=True,
    )


def shortened(name: str, width: int) -> str:
    """A step's name in at most ``width`` characters: its stage, and as much of its end as there is
    room for, as its beginning and end tell steps from one another."""
    if len(name) <= width:
        return name
    stage = f"{name.partition(' · ')[0]} · …"
    room = width - len(stage)
    return f"{stage}{name[-room:]}" if room > 0 else name[: max(width, 0)]
