"""Run a study from the command line: Prefect's server, the flow, and what to tell at the end."""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from pathlib import Path

from rich.console import Console

from flows.check import Checked
from flows.progress import StudyProgress
from flows.ready import given, made_ready
from flows.server import check_server, start_own_server
from tasks.store import Store


def launch(
    checked: Checked,
    store: Store,
    *,
    study: Path,
    overrides: list[str],
    workers: int | None,
    ray_address: str | None,
) -> None:
    """Run the flow and print the table and where things lie.

    Args:
        checked: the study, looked at.
        store: prepared by ``prepare_environment``.
        study, overrides, workers, ray_address: as on the command line.

    Raises:
        PapaError: the study could not start, or a cell failed.
    """
    console, errors = Console(), Console(stderr=True)
    server = None if "PREFECT_API_URL" in os.environ else start_own_server(store)
    with ExitStack() as stack:
        with errors.status("starting Prefect …") if errors.is_terminal else nullcontext():
            if not server:
                check_server()
            try:
                shown = StudyProgress(errors)
                ready = made_ready(checked, store, shown, workers=workers, ray_address=ray_address)
                mark = given.set(stack.enter_context(ready))
                stack.callback(given.reset, mark)
                from flows.study import Outcome, run_study
            finally:
                # A server that ends while it makes its tables leaves a database that none can use.
                if server:
                    server.wait()
        outcome = Outcome(
            **run_study(
                study=str(study.absolute()),
                overrides=overrides,
                store=store.address,
                workers=workers,
                ray_address=ray_address,
            )
        )
        _tell(outcome.folder, outcome.tracking, checked.inputs.study.name, console)


def _tell(folder: str, tracking: str, name: str, console: Console) -> None:
    from papa.reporting.summary import read_summary
    from papa.reporting.tables import summary_table

    console.print(summary_table(read_summary(Path(folder) / "summary.csv")))
    console.print(f"report   {folder}/report.md (and report.html)", soft_wrap=True, highlight=False)
    console.print(f"figures  {folder}/scores.png, scores.svg", soft_wrap=True, highlight=False)
    how = f"mlflow ui --backend-store-uri {tracking}" if tracking.startswith("sqlite:") else tracking
    console.print(f"MLflow   experiment '{name}': {how}", soft_wrap=True, highlight=False)
