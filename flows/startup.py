"""What precedes a study's first step: MLflow is asked, and workers are on their way up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from flows.check import Checked
from flows.progress import StudyProgress
from papa.processes import Process
from papa.spec import StudySpec
from papa.study.steps import StudySteps
from papa.study.store import Store
from papa.workers import WorkerPool
from tasks.live import LiveRuns
from tasks.mlflow import check_tracking
from tasks.track import Track


@dataclass(frozen=True)
class ReadyStudy:
    """A study that can start; where there is something to compute, its workers are on their way
    up.

    ``outcome`` is there once its steps have ended, with why they failed, which Prefect hands on as
    well, unless its server is lost.
    """

    spec: StudySpec
    steps: StudySteps
    store: Store
    pool: WorkerPool
    progress: StudyProgress
    live: LiveRuns
    outcome: Future[None] = field(default_factory=Future)


@contextmanager
def ready_study(checked: Checked, store: Store, progress: StudyProgress) -> Iterator[ReadyStudy]:
    """Inside the block the study can start; its workers end with the block."""
    spec = checked.inputs.study
    pool = WorkerPool(
        checked.workers,
        spec.execution.device,
        store.scratch,
        address=checked.cluster,
        shared=not store.is_remote,
    )
    with pool, live_runs(checked.steps, store, progress) as live:
        if checked.to_run:
            # First: what they import takes longest.
            pool.begin()
            check_tracking(live.address, spec.name)
            live.begin()
        yield ReadyStudy(spec, checked.steps, store, pool, progress, live)


def live_runs(steps: StudySteps, store: Store, progress: StudyProgress) -> LiveRuns:
    """What shows a study in MLflow while it runs, told by its progress."""
    *_, track = steps.steps
    assert isinstance(track, Track)

    def opened(link: str) -> None:
        if link:
            progress.noted(f"MLflow: {link}")

    live = LiveRuns(track, store, driver=Process.this(), opened=opened, failed=progress.noted)
    progress.follower = live
    return live
