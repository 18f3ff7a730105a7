"""Run a checked study: its workers, Prefect's server, the flow, and at the end its table and where things lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.check import Checked, cluster_address
from flows.graph import Graph
from flows.progress import StudyProgress
from flows.server import check_server, start_own_server
from papa.spec import StudySpec
from papa.workers import WorkerPool
from tasks.mlflow_client import check_tracking, tracking_address, without_password
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
    """

    spec: StudySpec
    graph: Graph
    store: Store
    pool: WorkerPool
    progress: StudyProgress


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


def run_checked(
    checked: Checked,
    store: Store,
    *,
    study: Path,
    overrides: list[str],
    workers: int | None,
    ray_address: str | None,
) -> None:
    """Run a study from the command line and print its table and where things lie.

    Args:
        checked: the study, looked at.
        store: prepared by ``prepare_environment``.
        study, overrides, workers, ray_address: as on the command line; Prefect records them.

    Raises:
        PapaError: the study could not start, or a cell failed.
    """
    errors = Console(stderr=True)
    server = None if "PREFECT_API_URL" in os.environ else start_own_server(store)
    with ExitStack() as stack:
        with errors.status("starting Prefect …") if errors.is_terminal else nullcontext():
            if not server:
                check_server()
            try:
                progress = StudyProgress(errors)
                ready = stack.enter_context(
                    ready_study(checked, store, progress, workers=workers, ray_address=ray_address)
                )
                from flows.study import study_flow
            finally:
                # A server that ends while it makes its tables leaves a database that none can use.
                if server:
                    server.wait()
        study_flow(ready)(
            study=str(study.absolute()),
            overrides=overrides,
            store=store.address,
            workers=workers,
            ray_address=ray_address,
        )
    _show_results(store, checked.inputs.study.name, Console())


def _show_results(store: Store, study: str, console: Console) -> None:
    from papa.reporting.summary import read_summary
    from papa.reporting.tables import summary_table

    folder, tracking = store.study(study), without_password(tracking_address(store))
    console.print(summary_table(read_summary(folder / "summary.csv")))
    console.print(f"report   {folder}/report.md (and report.html)", soft_wrap=True, highlight=False)
    console.print(f"figures  {folder}/scores.png, scores.svg", soft_wrap=True, highlight=False)
    how = f"mlflow ui --backend-store-uri {tracking}" if tracking.startswith("sqlite:") else tracking
    console.print(f"MLflow   experiment '{study}': {how}", soft_wrap=True, highlight=False)
