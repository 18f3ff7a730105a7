"""Run a study from the command line: check it, run the flow, print its table and its files."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from flows.environment import prepare_engines, start_server
from flows.interrupt import Interruption
from flows.progress import StudyProgress
from flows.terminal import say
from papa.errors import TransientError
from papa.imports import uncollected
from papa.spec import StudySpec
from papa.study.store import Store, no_longer_announced


def run_study(
    spec: StudySpec,
    store: Store,
    interruption: Interruption,
    *,
    study: Path | None = None,
    overrides: Sequence[str] = (),
    code: Sequence[Path] = (),
    workers: int | None = None,
    ray_address: str | None = None,
    verbose: bool = False,
) -> None:
    """Check a study and run it; print its table and where things lie.

    The store is made. The specification is saved beside the results; where the study has no file,
    ``study``, of its own, that is the file in Prefect's record.
    """
    prepare_engines(store.root, verbose=verbose)
    store.make()
    errors = Console(stderr=True)
    with uncollected(), errors.status("starting Prefect …"):
        # It comes up while the study is looked at, and what looks is imported.
        wait_for_server = start_server(interruption.fail)
        from flows.check import check_study
        from flows.studies import save_study

        checked = check_study(spec, store, workers=workers, ray_address=ray_address, code=code)
        found = checked.inputs.study
        kept = spec.model_copy(update={"code": found.code, "scores": found.scores})
        saved = save_study(store, kept)
        progress = StudyProgress(errors)
        for warning in checked.warnings:
            progress.told(spec.name, warning)
        interruption.kept = lambda: f"{progress.kept} in {store.address}"
        interruption.endings = progress.endings
        progress.endings.append(partial(no_longer_announced, store))
        import mlflow  # noqa: F401

        from flows import study as of_study

        wait_for_server()
    ready = of_study.Ready(checked, store, progress)
    of_study.ready.set(ready)
    what = "it answers that the study is over"
    try:
        # The state alone: Prefect would load what a server says that the result is.
        of_study.run_study(
            study=str((study or saved).absolute()),
            overrides=list(overrides) if study else [],
            store=store.address,
            workers=workers,
            ray_address=ray_address,
            return_state=True,
        )
    except Exception as error:
        what = str(error).partition("\n")[0] or type(error).__name__
    if not ready.outcome.done():
        raise TransientError(
            f"Prefect's server does not record the study ({what}): run again, finished steps are "
            "kept"
        )
    show_results(spec.name, store, ready.outcome.result(), Console())
    # As the process ends, there is nothing to look through for garbage.
    gc.freeze()


def show_results(study: str, store: Store, link: str, console: Console) -> None:
    """Print the table of a finished study, where its files are, and its ``link`` in MLflow."""
    from papa.reporting.tables import summary_table
    from papa.scores.summary import read_table

    folder = store.study(study)
    console.print(summary_table(read_table(folder / "summary.csv")))
    say(console, f"report   {folder}/report.html")
    say(console, f"figures  {folder}/scores.png, scores.svg, scores.pdf")
    ui = shlex.join(["papa", "ui", "--store", store.address])
    say(console, f"MLflow   {link or f'experiment {study!r}: {ui}'}")
