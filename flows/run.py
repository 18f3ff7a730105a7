"""Run a checked study: Prefect's server, the flow, and at the end its table and where things lie."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from rich.console import Console

from flows.check import check_study
from flows.environment import prepare_environment
from flows.interrupt import Interruption
from flows.processes import Process, mark_interrupted_run
from flows.progress import StudyProgress
from flows.server import check_server, use_server
from flows.startup import ready_study
from flows.studies import save_study
from papa.imports import uncollected
from papa.spec import StudySpec
from tasks.locks import no_longer_announced
from tasks.mlflow_client import tracking_address, without_password
from tasks.store import Store


def run_study(
    spec: StudySpec,
    store: Store,
    interruption: Interruption,
    *,
    study: Path | None = None,
    overrides: Sequence[str] = (),
    workers: int | None = None,
    ray_address: str | None = None,
    verbose: bool = False,
) -> None:
    """Check a study and run it from the command line; print its table and where things lie.

    Args:
        spec: its specification; it is saved beside the results.
        store: its store, made here.
        interruption: what Ctrl-C does.
        study, overrides, workers, ray_address: as on the command line, for Prefect's record; without a file of its own
            the study is the saved one.
        verbose: show what engines log.

    Raises:
        PapaError: the study could not start, or a cell failed.
    """
    prepare_environment(store, verbose=verbose)
    store.make()
    # It comes up while the study is looked at.
    server = use_server(store)
    checked = check_study(spec, store, workers=workers, ray_address=ray_address)
    saved = save_study(store, spec)
    errors = Console(stderr=True)
    with ExitStack() as stack:
        with uncollected(), errors.status("starting Prefect …") if errors.is_terminal else nullcontext():
            if not server:
                check_server()
            try:
                progress = StudyProgress(errors)
                interruption.hush, interruption.kept = progress.hush, lambda: f"{progress.kept} in {store.address}"
                ready = stack.enter_context(
                    ready_study(checked, store, progress, workers=workers, ray_address=ray_address)
                )
                interruption.endings += [ready.pool.abandon, partial(no_longer_announced, store, str(Process.this()))]
                interruption.last.append(ready.pool.remove_session)
                # For the end: while the server starts, there is time for it.
                import pandas  # noqa: F401

                from flows.study import study_flow

                interruption.endings.append(mark_interrupted_run)
            finally:
                # A server that ends while it makes its tables leaves a database that none can use.
                if server:
                    server.wait()
        study_flow(ready)(
            study=str((study or saved).absolute()),
            overrides=list(overrides) if study else [],
            store=store.address,
            workers=workers,
            ray_address=ray_address,
        )
    _show_results(store, checked.inputs.study.name, Console())
    # As the process ends, there is nothing to look through for garbage.
    gc.freeze()


def _show_results(store: Store, study: str, console: Console) -> None:
    from papa.reporting.summary import read_summary
    from papa.reporting.tables import summary_table

    folder, tracking = store.study(study), without_password(tracking_address(store))
    console.print(summary_table(read_summary(folder / "summary.csv")))
    console.print(f"report   {folder}/report.html (and report.md)", soft_wrap=True, highlight=False)
    console.print(f"figures  {folder}/scores.png, scores.svg", soft_wrap=True, highlight=False)
    own = f"papa ui --store {store.address}   (or: mlflow ui --backend-store-uri {tracking})"
    how = own if tracking.startswith("sqlite:") else tracking
    console.print(f"MLflow   experiment '{study}': {how}", soft_wrap=True, highlight=False)
