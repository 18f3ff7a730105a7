"""What precedes a study's first step: MLflow is asked, and workers are on their way up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from flows.check import Checked, cluster_address
from flows.graph import Graph
from flows.progress import StudyProgress
from papa.spec import StudySpec
from papa.workers import WorkerPool
from tasks.mlflow_client import check_tracking, tracking_address
from tasks.store import Store


@dataclass(frozen=True)
class ReadyStudy:
    """A study that can start.

    Attributes:
        spec: its specification, resolved.
        graph: its steps.
        store: where its artifacts are kept.
        pool: its workers; where there is something to compute, they are on their way up.
        progress: where its progress is shown.
        outcome: the folder of its results or why there are none, once its steps have ended: Prefect hands it on as
            well, unless its server is lost.
    """

    spec: StudySpec
    graph: Graph
    store: Store
    pool: WorkerPool
    progress: StudyProgress
    outcome: Future[str] = field(default_factory=Future)


@contextmanager
def ready_study(
    checked: Checked, store: Store, progress: StudyProgress, *, workers: int | None, ray_address: str | None
) -> Iterator[ReadyStudy]:
    """Inside the block the study can start; its workers end with the block.

    Args:
        checked: the study, looked at.
        store: its store, made.
        progress: where its progress is shown.
        workers, ray_address: as on the command line.

    Raises:
        PapaError: MLflow cannot be used.
    """
    spec = checked.inputs.study
    address, workers = cluster_address(spec, ray_address), workers or spec.execution.workers
    with WorkerPool(workers, spec.execution.device, store.scratch, address=address, shared=not store.is_remote) as pool:
        if checked.to_run:
            check_tracking(tracking_address(store), spec.name)
            pool.begin()
        yield ReadyStudy(spec, checked.graph, store, pool, progress)
