"""A study in MLflow while it runs: parent runs from its start, child runs as their probes begin, losses by epoch.

A thread of its own writes, in batches. Where MLflow fails it stops, and the study goes on: what it found is logged at
its end all the same.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from papa.errors import PapaError
from papa.processes import Process
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from papa.study.probe import read_scores
from papa.study.store import Store
from tasks.mlflow_client import connect, impatient, tracking_errors
from tasks.mlflow_parents import ParentRun, SeedRun
from tasks.mlflow_runs import DRIVER, StudyRuns, progress_metric

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

_BATCH_SECONDS = 2.0
_LOSS = "train_loss"
_LEAST_PROGRESS = 0.005
"""Less is not worth a point of a chart."""


class LiveRuns:
    """Inside its block a study is shown in MLflow, once ``begin`` is called. Its methods return at once.

    Args:
        address: MLflow's tracking URI.
        store: where files go if no server keeps them.
        study: the resolved specification.
        parents: its encoders on its tasks, each with the steps that train for all of its cells.
        probes: the cells and seeds that each probing step scores, by the step's name.
        last: the name of the step that logs the finished study.
        driver: the process that runs the study.
        opened: called with the experiment's id once it is there.
        failed: called with a sentence where MLflow fails.
    """

    def __init__(
        self,
        address: str,
        store: Store,
        study: StudySpec,
        parents: Mapping[ParentRun, Sequence[str]],
        probes: Mapping[str, Sequence[tuple[Cell, int]]],
        last: str,
        *,
        driver: Process,
        opened: Callable[[str], None],
        failed: Callable[[str], None],
    ) -> None:
        self.address, self.store, self.study, self.last = address, store, study, last
        self._parents = {parent.place: parent for parent in parents}
        self._trains = {step: parent for parent, steps in parents.items() for step in steps}
        self._probes, self._driver = probes, str(driver)
        self._opened, self._failed = opened, failed
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._runs: StudyRuns
        self._open: dict[ParentRun, Run] = {}
        self._children: dict[str, dict[SeedRun, Run]] = {}
        self._running: set[str] = set()
        self._pending: dict[str, list[Metric]] = defaultdict(list)
        self._points: set[tuple[str, str, int]] = set()
        self._share, self._shown = 0.0, -1.0
        self._logging = self._logged = False

    def __enter__(self) -> LiveRuns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()
        if self._open and not self._logged:
            failed = kind is not None and issubclass(kind, Exception)
            with impatient(), suppress(Exception):
                self._close("FAILED" if failed else "FINISHED" if kind is None else "KILLED")

    def begin(self) -> None:
        """Show the study from now on."""
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def enters(self, step: str) -> None:
        """A step is about to run; before the last one everything is written."""
        if step == self.last:
            self._finish()
            self._logging = True

    def started(self, step: str) -> None:
        """A worker has started a step."""
        if step in self._probes:
            self._tell(partial(self._start_cells, step))

    def epoch(self, step: str, epoch: int, losses: Mapping[int, float]) -> None:
        """A step has trained for one more epoch, with these losses of each seed."""
        self._tell(partial(self._log_losses, step, epoch, losses))

    def finished(self, step: str, found: ArtifactReference) -> None:
        """A step is done, and this is what it made."""
        self._logged |= self._logging and step == self.last
        if step in self._probes:
            self._tell(partial(self._finish_cells, step, found))

    def failed(self, step: str) -> None:
        """A step failed."""
        if step in self._probes:
            self._tell(partial(self._fail_cells, step))

    def share(self, share: float) -> None:
        """So much of the study is done, 0 to 1."""
        self._share = share

    def interrupted(self) -> None:
        """The process ends at once: its runs are set to Killed."""
        self._thread = None
        with impatient():
            self._close("KILLED")

    def _tell(self, event: Callable[[], None]) -> None:
        if self._thread is not None:
            self._events.put(event)

    def _finish(self) -> None:
        """Write what there is to write, and end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._events.put(None)
            thread.join()

    def _work(self) -> None:
        try:
            with impatient(), tracking_errors(self.address):
                self._begin()
                while self._take_in():
                    self._write()
                self._write()
        # Whatever MLflow raises, no study fails by it.
        except Exception as error:
            self._thread = None
            reason = str(error) if isinstance(error, PapaError) else f"{type(error).__name__}: {error}"
            self._failed(f"MLflow shows the study only when it is over: {reason}")

    def _begin(self) -> None:
        client = connect(self.address)
        self._runs = StudyRuns(client, self.store, self.study)
        for run in self._runs.search("attributes.status = 'RUNNING'"):
            driver = Process.parse(run.data.tags.get(DRIVER, ""))
            if driver is not None and driver.gone:
                client.set_terminated(run.info.run_id, "KILLED")
        for parent in self._parents.values():
            run = self._open[parent] = self._runs.parent(parent)
            self._reopen(run)
        self._write()
        self._opened(self._runs.experiment)

    def _take_in(self) -> bool:
        """Take in what happens for as long as a batch lasts; False once there is no more to come."""
        until = time.monotonic() + _BATCH_SECONDS
        with suppress(queue.Empty):
            while (left := until - time.monotonic()) > 0:
                event = self._events.get(timeout=left)
                if event is None:
                    return False
                event()
        return True

    def _reopen(self, run: Run) -> None:
        client, run_id = self._runs.client, run.info.run_id
        client.set_tag(run_id, DRIVER, self._driver)
        client.update_run(run_id, status="RUNNING")
        losses = [name for name in run.data.metrics if name.endswith(_LOSS)]
        self._points |= {(run_id, name, one.step) for name in losses for one in client.get_metric_history(run_id, name)}

    def _start_cells(self, step: str) -> None:
        if step in self._children:
            return
        children = self._children[step] = {}
        for cell, seed in self._probes[step]:
            parent = self._parents[cell.encoder, cell.task]
            one = SeedRun(parent, self.study, cell, seed)
            run = self._runs.runs.get(one.key)
            if run is None:
                run = self._runs.cell(one, self._open[parent].info.run_id, {DRIVER: self._driver})
            elif run.info.status == "FINISHED":
                continue
            else:
                self._reopen(run)
            children[one] = run
            self._running.add(run.info.run_id)

    def _log_losses(self, step: str, epoch: int, losses: Mapping[int, float]) -> None:
        for one, run in self._children.get(step, {}).items():
            if one.seed in losses:
                self._add(run, _LOSS, losses[one.seed], epoch)
        if step in self._trains:
            mean = sum(losses.values()) / len(losses)
            name = f"lambda/seed_{min(losses)}" if step.startswith("rank ") else "word_embeddings"
            self._add(self._open[self._trains[step]], f"{name}/{_LOSS}", mean, epoch)

    def _finish_cells(self, step: str, found: ArtifactReference) -> None:
        children = self._children.get(step, {})
        if not children:
            return
        document = read_scores(found.folder)
        of_seed = {one.seed: one for one in document.scores}
        for one, run in children.items():
            losses = self._pending.pop(run.info.run_id, [])
            self._runs.score(one, run, (found, document, of_seed[one.seed]), more=losses)
            self._running.discard(run.info.run_id)

    def _fail_cells(self, step: str) -> None:
        for run in self._children.get(step, {}).values():
            self._runs.client.set_terminated(run.info.run_id, "FAILED")
            self._running.discard(run.info.run_id)

    def _add(self, run: Run, name: str, value: float, step: int) -> None:
        from mlflow.entities import Metric

        if (point := (run.info.run_id, name, step)) not in self._points:
            self._points.add(point)
            self._pending[run.info.run_id].append(Metric(name, value, int(time.time() * 1000), step))

    def _write(self) -> None:
        """Write the metrics that have come together."""
        if self._share - self._shown >= _LEAST_PROGRESS:
            self._shown = self._share
            for run in self._open.values():
                self._pending[run.info.run_id].append(progress_metric(run, self._share))
        pending, self._pending = self._pending, defaultdict(list)
        for run_id, metrics in pending.items():
            for start in range(0, len(metrics), 1000):
                self._runs.client.log_batch(run_id, metrics=metrics[start : start + 1000])

    def _close(self, status: str) -> None:
        """End the runs that are open."""
        for run in list(self._open.values()):
            self._runs.client.set_terminated(run.info.run_id, status)
        for run_id in list(self._running):
            self._runs.client.set_terminated(run_id, "KILLED")
