"""What stands before a study's first step: its graph, MLflow asked, workers on their way up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from flows.check import Checked, cluster_address
from flows.graph import Graph
from flows.progress import StudyProgress
from papa.workers import WorkerPool
from tasks.mlflow_client import check_tracking, tracking_address
from tasks.store import Store


@dataclass(frozen=True)
class Ready:
    """A study that can start.

    Attributes:
        graph: its steps.
        pool: its workers; where there is something to compute, they are on their way up.
        shown: where progress is shown.
    """

    graph: Graph
    pool: WorkerPool
    shown: StudyProgress


given: ContextVar[Ready | None] = ContextVar("given", default=None)
"""What the command line made ready; flows started by others do it themselves."""


@contextmanager
def made_ready(
    checked: Checked,
    place: Store,
    shown: StudyProgress,
    *,
    workers: int | None,
    ray_address: str | None,
) -> Iterator[Ready]:
    """Inside the block the study can start; its workers end with the block.

    Args:
        checked: the study, looked at.
        place: its store.
        shown: where progress is shown.
        workers, ray_address: as on the command line.

    Raises:
        PapaError: MLflow cannot be used.
    """
    spec = checked.inputs.study
    address, execution = tracking_address(place), spec.execution
    cluster = cluster_address(spec, ray_address)
    with WorkerPool(
        workers or execution.workers, execution.device, place.scratch, address=cluster, shared=not place.is_remote
    ) as pool:
        if checked.to_run:
            check_tracking(address, spec.name)
            pool.begin()
        yield Ready(checked.graph, pool, shown)
