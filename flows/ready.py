"""What stands before a study's first step: its graph, checks that save hours, workers on their way up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from flows.build import build_graph
from flows.capacity import check_memory
from flows.graph import Graph
from flows.inputs import StudyInputs, check_device
from flows.plan import plan_study
from flows.progress import StudyProgress
from papa.spec import StudySpec
from papa.workers import WorkerPool
from tasks.store import Store
from tasks.tracking_address import tracking_address
from tasks.tracking_client import check_tracking


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
    spec: StudySpec,
    inputs: StudyInputs,
    place: Store,
    shown: StudyProgress,
    *,
    workers: int | None,
    ray_address: str | None,
) -> Iterator[Ready]:
    """Inside the block the study can start; its workers end with the block.

    Args:
        spec, inputs: the resolved study and its checked inputs.
        place: its store.
        shown: where progress is shown.
        workers, ray_address: as on the command line.

    Raises:
        PapaError: the precision does not fit the device, memory is too small, or MLflow cannot be used.
    """
    spec = inputs.study
    address, execution = tracking_address(place), spec.execution
    graph = build_graph(spec, inputs, address)
    cluster = ray_address or execution.ray_address or os.environ.get("RAY_ADDRESS")
    check_device(spec, cluster)
    with WorkerPool(
        workers or execution.workers, execution.device, place.scratch, address=cluster, shared=not place.is_remote
    ) as pool:
        if any(step.state == "to run" for step in plan_study(graph, place, {})):
            if cluster is None:
                check_memory(spec, inputs, pool.size)
            check_tracking(address, spec.name)
            pool.begin()
        yield Ready(graph, pool, shown)
