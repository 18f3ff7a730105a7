"""Run a checked study: Prefect's server, the flow, and at the end its table and where things lie."""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from pathlib import Path

from rich.console import Console

from flows.check import Checked
from flows.progress import StudyProgress
from flows.server import check_server, start_own_server
from flows.startup import ready_study
from tasks.mlflow_client import tracking_address, without_password
from tasks.store import Store


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
    console.print(f"report   {folder}/report.html (and report.md)", soft_wrap=True, highlight=False)
    console.print(f"figures  {folder}/scores.png, scores.svg", soft_wrap=True, highlight=False)
    how = f"mlflow ui --backend-store-uri {tracking}" if tracking.startswith("sqlite:") else tracking
    console.print(f"MLflow   experiment '{study}': {how}", soft_wrap=True, highlight=False)
