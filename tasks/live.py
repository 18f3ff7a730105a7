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
from typing import TYPE_CHECKING

from papa.errors import PapaError
from papa.processes import Process
from papa.storage.artifacts import ArtifactReference
from papa.study.probe import read_scores
from papa.study.store import Store
from tasks.mlflow import connect, impatient, tracking_errors
from tasks.runs import Entry, Point, now
from tasks.shown import ShownPart
from tasks.track import StudyRuns, Track, progress_of

if TYPE_CHECKING:
    from mlflow.entities import Run

_DRIVER = "papa.driver"
"""The tag with the process that runs the study."""
_BATCH_SECONDS = 2.0
_LOSS = "train_loss"
_LEAST_PROGRESS = 0.005
"""Less is not worth a point of a chart."""


class LiveRuns:
    """Inside its block a study is shown in MLflow, once ``begin`` is called. Its methods return at
    once; ``opened`` is called with the experiment's id, ``failed`` with a sentence where MLflow
    fails.
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
        self._store, self._driver = store, str(driver)
        self._opened, self._failed = opened, failed
        self._probes: dict[str, list[tuple[ShownPart, Entry]]] = defaultdict(list)
        self._trains: dict[str, tuple[Entry, str]] = {}
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._runs: StudyRuns
        self._parents: list[Run] = []
        self._children: dict[str, dict[Entry, Run]] = {}
        self._points: dict[str, list[Point]] = defaultdict(list)
        self._known: set[tuple[str, str, int]] = set()
        self._share, self._shown = 0.0, -1.0

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

    def epoch(self, step: str, epoch: int, losses: Mapping[int, float]) -> None:
        """A step has trained for one more epoch, with these losses of each seed."""
        self._tell(self._log_losses, step, epoch, losses)

    def finished(self, step: str, found: ArtifactReference) -> None:
        """A step is done, and this is what it made."""
        if step == self.track.name and self._thread is None:
            self._parents.clear()  # It has ended them.
        self._tell(self._finish_cells, step, found)

    def failed(self, step: str) -> None:
        """A step failed."""
        self._tell(self._fail_cells, step)

    def share(self, share: float) -> None:
        """So much of the study is done, 0 to 1."""
        self._share = share

    def interrupted(self) -> None:
        """The process ends at once: its runs are set to Killed."""
        self._thread = None
        with impatient():
            self._close("KILLED")

    def _tell(self, write: Callable[..., None], step: str, *what: object) -> None:
        if self._thread is not None:
            self._events.put(partial(write, step, *what))

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
                self._runs.runs.agree()
        # Whatever MLflow raises, no study fails by it.
        except Exception as error:
            self._thread = None
            kind = "" if isinstance(error, PapaError) else f"{type(error).__name__}: "
            self._failed(f"MLflow shows the study only when it is over: {kind}{error}")

    def _open(self) -> None:
        client = connect(self.address)
        self._runs = StudyRuns(client, self._store, self.track)
        runs = self._runs.runs
        for run in runs.by_key.values():
            driver = Process.parse(run.data.tags.get(_DRIVER, ""))
            if run.info.status == "RUNNING" and driver is not None and driver.gone:
                client.set_terminated(run.info.run_id, "KILLED")
        for parent in self.track.shown:
            if parent.part.baseline:
                self._trains[parent.part.baseline.name] = parent.entry, "word_embeddings"
            self._trains |= {
                step.name: (parent.entry, f"lambda/seed_{seed}")
                for seed, step in parent.part.rankings.get("lambda", {}).items()
            }
            for cell, step, seed in parent.scored:
                self._probes[step.name].append((parent, parent.cell(cell, seed)))
            self._parents.append(runs.get(parent.entry))
            self._reopen(self._parents[-1])
        self._write()
        self._opened(runs.experiment)

    def _reopen(self, run: Run) -> None:
        """Go on with a run, and write no loss that it has."""
        client, run_id = self._runs.client, run.info.run_id
        client.set_tag(run_id, _DRIVER, self._driver)
        client.update_run(run_id, status="RUNNING")
        losses = [name for name in run.data.metrics if name.endswith(_LOSS)]
        self._known |= {
            (run_id, name, loss.step)
            for name in losses
            for loss in client.get_metric_history(run_id, name)
        }

    def _start_cells(self, step: str) -> None:
        for part, entry in () if step in self._children else self._probes[step]:
            there = entry.key in self._runs.runs.by_key
            run = self._runs.child(part, entry, **{_DRIVER: self._driver})
            if there and run.info.status != "FINISHED":
                self._reopen(run)
            if not there or run.info.status != "FINISHED":
                self._children.setdefault(step, {})[entry] = run

    def _log_losses(self, step: str, epoch: int, losses: Mapping[int, float]) -> None:
        for entry, run in self._children.get(step, {}).items():
            if entry.params["seed"] in losses:
                self._add(run, _LOSS, losses[entry.params["seed"]], epoch)
        if step in self._trains:
            entry, name = self._trains[step]
            self._add(
                self._runs.runs.get(entry),
                f"{name}/{_LOSS}",
                sum(losses.values()) / len(losses),
                epoch,
            )

    def _add(self, run: Run, name: str, value: float, step: int) -> None:
        if (point := (run.info.run_id, name, step)) not in self._known:
            self._known.add(point)
            self._points[run.info.run_id].append((name, value, now(), step))

    def _finish_cells(self, step: str, found: ArtifactReference) -> None:
        if children := self._children.pop(step, {}):
            document = read_scores(found)
            for entry, run in children.items():
                self._runs.score(
                    entry, found, document, points=self._points.pop(run.info.run_id, [])
                )

    def _fail_cells(self, step: str) -> None:
        for run in self._children.pop(step, {}).values():
            self._runs.client.set_terminated(run.info.run_id, "FAILED")

    def _write(self) -> None:
        """Write what has happened."""
        while not self._events.empty():
            self._events.get()()
        if self._share - self._shown >= _LEAST_PROGRESS:
            self._shown = self._share
            for run in self._parents:
                self._points[run.info.run_id].append(progress_of(run, self._share))
        points, self._points = self._points, defaultdict(list)
        for run_id, some in points.items():
            self._runs.runs.log(run_id, some)

    def _close(self, status: str) -> None:
        """End the runs that are open."""
        for run in self._parents:
            self._runs.client.set_terminated(run.info.run_id, status)
        for children in list(self._children.values()):
            for run in list(children.values()):
                self._runs.client.set_terminated(run.info.run_id, "KILLED")
