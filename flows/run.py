"""Run a checked study: Prefect's server, the flow, and at the end its table and where things lie."""

from __future__ import annotations

import gc
from contextlib import ExitStack, nullcontext
from pathlib import Path

from rich.console import Console

from flows.check import Checked
from flows.progress import StudyProgress
from flows.server import OwnServer, check_server
from flows.startup import ready_study
from papa.imports import uncollected
from tasks.mlflow_client import tracking_address, without_password
from tasks.store import Store


def run_checked(
    checked: Checked,
    store: Store,
    server: OwnServer | None,
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
        server: the one that was started for the study; None where ``PREFECT_API_URL`` names another.
        study, overrides, workers, ray_address: as on the command line; Prefect records them.

    Raises:
        PapaError: the study could not start, or a cell failed.
    """
    errors = Console(stderr=True)
    with ExitStack() as stack:
        with uncollected(), errors.status("starting Prefect …") if errors.is_terminal else nullcontext():
            if not server:
                check_server()
            try:
                progress = StudyProgress(errors)
                ready = stack.enter_context(
                    ready_study(checked, store, progress, workers=workers, ray_address=ray_address)
                )
                # For the end: while the server starts, there is time for it.
                import pandas  # noqa: F401

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
    # As the process ends, there is nothing to look through for garbage.
    gc.freeze()


def _show_results(store: Store, study: str, console: Console) -> None:
    from papa.reporting.summary import read_summary
    from papa.reporting.tables import summary_table

    folder, tracking = store.study(study), without_password(tracking_address(store))
    console.print(summary_table(read_summary(folder / "summary.csv")))
    console.print(f"report   {folder}/report.md (and report.html)", soft_wrap=True, highlight=False)
    console.print(f"figures  {folder}/scores.png, scores.svg", soft_wrap=True, highlight=False)
    own = f"papa ui --store {store.address}   (or: mlflow ui --backend-store-uri {tracking})"
    how = own if tracking.startswith("sqlite:") else tracking
    console.print(f"MLflow   experiment '{study}': {how}", soft_wrap=True, highlight=False)
