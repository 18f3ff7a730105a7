"""Run a study from the command line: Prefect's server, the flow, and what to tell at the end."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from flows.environment import own_server
from flows.inputs import StudyInputs
from flows.leftovers import end_stale_servers
from flows.progress import StudyProgress
from papa.spec import StudySpec
from tasks.store import Store


def launch(
    spec: StudySpec,
    inputs: StudyInputs,
    store: Store,
    *,
    study: Path,
    overrides: list[str],
    workers: int | None,
) -> None:
    """Run the flow and print the table and where things lie.

    Args:
        spec, inputs: the resolved study and its checked inputs.
        store: prepared by ``prepare_environment``.
        study, overrides, workers: as on the command line.

    Raises:
        PapaError: the study could not start, or a cell failed.
    """
    console, errors = Console(), Console(stderr=True)
    if own_server():
        end_stale_servers(store)
    with errors.status("starting Prefect …") if errors.is_terminal else nullcontext():
        from flows.study import Given, Outcome, given, run_study
    mark = given.set(Given(inputs, StudyProgress(errors)))
    try:
        outcome = Outcome(
            **run_study(study=str(study.absolute()), overrides=overrides, store=str(store.root), workers=workers)
        )
    finally:
        given.reset(mark)
    _tell(outcome.folder, outcome.tracking, spec.name, console)


def _tell(folder: str, tracking: str, name: str, console: Console) -> None:
    import pandas

    from papa.reporting.tables import summary_table

    console.print(summary_table(pandas.read_csv(Path(folder) / "summary.csv")))
    console.print(f"report   {folder}/report.md (and report.html)", soft_wrap=True, highlight=False)
    console.print(f"figures  {folder}/scores.png, scores.svg", soft_wrap=True, highlight=False)
    how = f"mlflow ui --backend-store-uri {tracking}" if tracking.startswith("sqlite:") else tracking
    console.print(f"MLflow   experiment '{name}': {how}", soft_wrap=True, highlight=False)
