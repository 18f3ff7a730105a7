"""Progress of a running study: the steps, how far each is, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from papa.progress import Progress as ReportProgress

if TYPE_CHECKING:
    from tasks.live import LiveRuns

_LINE_SECONDS = 15.0
_STUDY = "study"
_ALMOST = 0.99
"""What is shown while steps remain that were planned to take no time."""
_BAR_WIDTH = 12
_BESIDE_NAMES = 46
"""Columns of a terminal for the bar, the share, the time so far and the time left."""


class StudyProgress:
    """Shows a study's progress inside its ``with`` block: bars in a terminal, lines elsewhere,
    which ``log`` takes as well. Thread-safe.
    """

    def __init__(self, output: Console | Callable[[str], object]) -> None:
        self.log: Callable[[str], object] = lambda _: None
        self.follower: LiveRuns | None = None
        self._lock = threading.RLock()
        self._bars: Progress | None = None
        self._print: Callable[[str], object]
        if isinstance(output, Console):
            self._bars = _bars(output) if output.is_terminal else None
            self._print = partial(output.print, markup=False, highlight=False, soft_wrap=True)
        else:
            self._print = output
        self._study: TaskID | None = None
        self._remaining, self._steps = Remaining({}), 0
        self._kept: set[str] = set()
        self._done: dict[str, float] = {}
        self._last_line = 0.0

    def __enter__(self) -> StudyProgress:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars:
            self._bars.stop()

    def hush(self) -> None:
        """Show nothing any more, as the process ends."""
        self._print = self.log = lambda _: None
        if self._bars:
            self._bars.stop()
            self._bars.console.quiet = True

    @property
    def kept(self) -> str:
        """How many steps are finished, in words."""
        which = f"{len(self._kept)} of {self._steps}" if self._steps else "finished"
        return f"{which} steps are kept"

    def plan(self, seconds: Mapping[str, float]) -> None:
        """The study has these steps, each estimated to take so many seconds."""
        with self._lock:
            self._remaining, self._steps = Remaining(seconds), len(seconds)
            if self._bars:
                self._study = self._bars.add_task(_STUDY, total=1.0, left="")

    @contextmanager
    def running(self, name: str) -> Iterator[ReportProgress]:
        """While the block runs, the step ``name`` is in progress; it is shown once a worker has
        started it.
        """
        started = 0.0
        bar: TaskID | None = None
        if self.follower:
            self.follower.enters(name)

        def begin() -> None:
            nonlocal started, bar
            started = time.monotonic()
            if self._bars:
                room = self._bars.console.width - _BESIDE_NAMES
                bar = self._bars.add_task(shortened(name, room), total=1.0, left="")
            self._line(f"{name}: started")
            if self.follower:
                self.follower.started(name)

        def report(done: int, total: int) -> None:
            with self._lock:
                if not started:
                    begin()
                share = min(1.0, done / total) if total else 0.0
                self._remaining.partial(name, share)
                left = (time.monotonic() - started) * (1 - share) / share if share > 0.02 else None
                if self._bars and bar is not None:
                    self._bars.update(bar, completed=share, left=_left(left))
                if time.monotonic() - max(self._last_line, started) >= _LINE_SECONDS:
                    self._line(f"{name}: {share:.0%} {_left(left)}".rstrip())
                self._show_study()

        try:
            yield report
        finally:
            with self._lock:
                if self._bars and bar is not None:
                    self._bars.remove_task(bar)
                self._done[name] = time.monotonic() - started if started else 0.0

    def finished(self, name: str, *, cached: bool) -> None:
        """A step is done, or was there already."""
        with self._lock:
            self._remaining.finish(name, cached=cached)
            self._kept.add(name)
            seconds = self._done.pop(name, None)
            there = cached or seconds is None
            how = "already there" if there else f"done in {duration(seconds or 0.0)}"
            self._say("[green]✓[/]", f"{name}: {how}")
            self._show_study()

    def told(self, name: str, sentence: str) -> None:
        """There is something to know of a step."""
        self._say("[yellow]![/]", f"{name}: {sentence}")

    def failed(self, name: str, reason: str) -> None:
        """A step failed."""
        with self._lock:
            self._remaining.finish(name, cached=True)
            self._say("[red]✗[/]", f"{name}: failed: {reason}")

    def noted(self, sentence: str) -> None:
        """Something worth knowing that is about no step."""
        self._say("[blue]·[/]", sentence)

    def _show_study(self) -> None:
        if self.follower:
            self.follower.share(self._remaining.share())
        if self._bars and self._study is not None:
            left = _left(self._remaining.seconds())
            self._bars.update(self._study, completed=self._remaining.share(), left=left)

    def _say(self, mark: str, text: str) -> None:
        with self._lock:
            if self._bars:
                self._bars.console.print(f"{mark} {escape(text)}")
            self._line(text)

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        left = self._remaining.seconds()
        text += f" | study {self._remaining.share():.0%}"
        text += f", {_left(left)}" if left is not None else ""
        self.log(text)
        if not self._bars:
            self._print(text)


class Remaining:
    """Time left of a study, by how long the estimated seconds of its steps have taken so far."""

    def __init__(self, planned: Mapping[str, float]) -> None:
        self._planned = dict(planned)
        self._unfinished = set(planned)
        self._total = sum(planned.values())
        self._shares: dict[str, float] = {}
        self._finished = 0.0
        self._cached = 0.0
        self._started = time.monotonic()

    def partial(self, name: str, share: float) -> None:
        """A step is so far done, 0 to 1."""
        self._finished += self._planned.get(name, 0.0) * (share - self._shares.get(name, 0.0))
        self._shares[name] = share

    def finish(self, name: str, *, cached: bool) -> None:
        """A step is done."""
        self.partial(name, 1.0)
        self._unfinished.discard(name)
        self._cached += self._planned.get(name, 0.0) if cached else 0.0

    def share(self) -> float:
        """How much of the study is done, 0 to 1; 1 once every step is, however short."""
        if not self._unfinished:
            return 1.0 if self._planned else 0.0
        return min(_ALMOST, self._finished / self._total) if self._total else 0.0

    def seconds(self) -> float | None:
        """Seconds left; None before there is enough to estimate from."""
        worked = self._finished - self._cached
        elapsed = time.monotonic() - self._started
        if worked <= 0.01 * self._total or elapsed < 2:
            return None
        left = max(0.0, self._total - self._finished) * elapsed / worked
        return left if left >= 1 else None


def duration(seconds: float) -> str:
    """A duration in words: "42 s", "3 min", "2.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _left(seconds: float | None) -> str:
    return "" if seconds is None or seconds < 1 else f"about {duration(seconds)} left"


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        BarColumn(bar_width=_BAR_WIDTH),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False, table_column=Column(no_wrap=True)),
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
