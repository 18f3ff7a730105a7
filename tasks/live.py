"""A study in MLflow while it runs: parent runs from its start, child runs as their probes begin,
losses by epoch.

A thread of its own writes, in batches. Where MLflow fails it stops, and the study goes on: what it
found is logged at its end all the same.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from papa.errors import PapaError
from papa.processes import Process
from papa.storage.artifacts import ArtifactReference
from papa.study.store import Store
from tasks.mlflow import connect, impatient, tracking_errors
from tasks.runs import StudyRuns
from tasks.shown import LOSS, Entry, ShownLoss, live_link
from tasks.track import Track

_DRIVER = "papa.driver"
"""The tag with the process that runs the study."""
_BATCH_SECONDS = 2.0
_LEAST_PROGRESS = 0.005
"""Less is not worth a point of a chart."""


class LiveRuns:
    """Inside its block a study is shown in MLflow, once ``begin`` is called. Its methods return at
    once; ``opened`` is called with where a browser shows it, or "", and ``failed`` with a sentence
    where MLflow fails.
    """

    def __init__(
        self,
        track: Track,
        store: Store,
        *,
        driver: Process,
        opened: Callable[[str], None],
        failed: Callable[[str], None],
    ) -> None:
        self.address, self.track = track.address, track
        self._store, self._driver = store, {_DRIVER: str(driver)}
        self._opened, self._failed = opened, failed
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._runs: StudyRuns
        self._shows: dict[str, list[ShownLoss]] = defaultdict(list)
        self._running: dict[str, list[Entry]] = defaultdict(list)
        self._known: set[tuple[Entry, str, int]] = set()
        self._share, self._shown_share = 0.0, -1.0

    def __enter__(self) -> LiveRuns:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._finish()
        failed = "FAILED" if kind and issubclass(kind, Exception) else "KILLED"
        with impatient(), suppress(Exception):
            self._close(failed if kind else "FINISHED")

    def begin(self) -> None:
        """Show the study from now on."""
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def enters(self, step: str) -> None:
        """A step is about to run; before the last one everything is written."""
        if step == self.track.name:
            self._finish()

    def started(self, step: str) -> None:
        """A worker has started a step."""
        self._tell(self._start_cells, step)

    def epoch(self, step: str, epoch: int, losses: Mapping[int, float], at: float = 0.0) -> None:
        """A step has trained for one more epoch, with these losses of each seed."""
        self._tell(self._add_losses, step, epoch, losses)

    def finished(self, step: str, found: ArtifactReference) -> None:
        """A step is done, and this is what it made."""
        if step != self.track.name:
            self._tell(self._score, step, found)
        elif self._thread is None:
            self._running.pop(step, None)  # It has ended them.

    def failed(self, step: str) -> None:
        """A step failed."""
        self._tell(self._end, step, "FAILED")

    def share(self, share: float) -> None:
        """So much of the study is done, 0 to 1."""
        self._share = share

    def interrupted(self) -> None:
        """The process ends at once: its runs are set to Killed."""
        self._thread = None
        with impatient():
            self._close("KILLED")

    def _tell(self, write: Callable[..., None], *what: object) -> None:
        if self._thread is not None:
            self._events.put(partial(write, *what))

    def _finish(self) -> None:
        """Write what there is to write, and end the thread."""
        thread, self._thread = self._thread, None
        self._over.set()
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        try:
            with impatient(), tracking_errors(self.address):
                self._open()
                while not self._over.wait(_BATCH_SECONDS):
                    self._write()
                self._write()
                self._runs.agree()
        # Whatever MLflow raises, no study fails by it.
        except Exception as error:
            self._thread = None
            kind = "" if isinstance(error, PapaError) else f"{type(error).__name__}: "
            self._failed(f"MLflow shows the study only when it is over: {kind}{error}")

    def _open(self) -> None:
        client, shown = connect(self.address), self.track.shown
        self._runs = StudyRuns(client, self._store, self.track.study.name, shown, self._driver)
        for run in self._runs.by_key.values():
            driver = Process.parse(run.data.tags.get(_DRIVER, ""))
            if run.info.status == "RUNNING" and driver is not None and driver.gone:
                client.set_terminated(run.info.run_id, "KILLED")
        for parent in shown:
            self._go_on(self.track.name, parent.entry)
            for step, loss in parent.losses():
                self._shows[step].append(loss)
        self._write()
        self._opened(live_link(self.address, self._runs.experiment))

    def _go_on(self, step: str, entry: Entry) -> None:
        """Open a run that is there, and write no loss that it has."""
        run, client = self._runs.get(entry), self._runs.client
        self._runs.write(entry, tags=self._driver, end=False)
        client.update_run(run.info.run_id, status="RUNNING")
        self._running[step].append(entry)
        for name in run.data.metrics:
            if name.endswith(LOSS):
                history = client.get_metric_history(run.info.run_id, name)
                self._known |= {(entry, name, loss.step) for loss in history}

    def _start_cells(self, step: str) -> None:
        for entry, _, seed in self._shows[step]:
            if seed is None or entry in self._running[step]:
                continue
            if entry.key not in self._runs.by_key:
                self._runs.get(entry)
                self._running[step].append(entry)
            elif self._runs.get(entry).info.status != "FINISHED":
                self._go_on(step, entry)

    def _add_losses(self, step: str, epoch: int, losses: Mapping[int, float]) -> None:
        for entry, name, seed in self._shows[step]:
            values = [loss for of, loss in losses.items() if seed in (of, None)]
            is_running = entry.parent is None or entry in self._running[step]
            if values and is_running and (entry, name, epoch) not in self._known:
                self._known.add((entry, name, epoch))
                self._runs.add(entry, name, sum(values) / len(values), epoch)

    def _score(self, step: str, found: ArtifactReference) -> None:
        if cells := self._running.pop(step, None):
            self._runs.score(cells, found)

    def _write(self) -> None:
        """Write what has happened."""
        while not self._events.empty():
            self._events.get()()
        if self._share - self._shown_share >= _LEAST_PROGRESS:
            self._shown_share = self._share
            for parent in self.track.shown:
                self._runs.add_progress(parent.entry, self._share)
        self._runs.flush()

    def _end(self, step: str, status: str) -> None:
        for entry in self._running.pop(step, ()):
            self._runs.client.set_terminated(self._runs.get(entry).info.run_id, status)

    def _close(self, status: str) -> None:
        """End the runs that are open."""
        self._end(self.track.name, status)
        for step in list(self._running):
            self._end(step, "KILLED")
