"""What ``papa report`` does: build a finished study's report again from what the store holds."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from flows.progress import StudyProgress
from flows.terminal import say
from papa.errors import SpecError
from papa.spec import StudySpec
from papa.storage.artifacts import remove
from papa.study.aggregate import earlier_results
from papa.study.here import run_here
from papa.study.store import Store
from papa.study.stored import StoredStudy


def rebuild_report(study: StudySpec, store: Store, console: Console) -> Path:
    """Write the report of a study again, and print where it is.

    Nothing else is computed. MLflow gets it with the next ``papa run``. What an earlier version of
    PAPA finished is shown as it is.

    Raises:
        SpecError: steps of the study are not finished; the message says what is there.
    """
    stored = StoredStudy(study, store)
    step = stored.steps.steps[-1]
    if not all(need in stored.found for need in step.needs):
        earlier = earlier_results(store, study.name)
        if stored.found or not earlier:
            raise SpecError(_unfinished(study.name, stored))
        say(console, stored.nothing_found())
        return _shown(earlier, console)
    store.make()
    remove(step.folder(store))
    with StudyProgress(lambda _: None) as progress:
        run_here([step], store, study.execution, progress)
    return _shown(store.study(study.name), console)


def _shown(folder: Path, console: Console) -> Path:
    say(console, f"report   {folder}/report.md (and report.html)")
    return folder


def _unfinished(study: str, stored: StoredStudy) -> str:
    cells, steps = stored.steps.cells, stored.steps.steps[:-1]
    finished = sum(step in stored.found for step in steps)
    if not finished:
        return stored.nothing_found()
    return (
        f"study '{study}' is not finished: {len(stored.cells)} of {len(cells)} cells and "
        f"{finished} of {len(steps)} steps are there: run 'papa run' on it to go on, or 'papa "
        "heads' to see what its cells say already"
    )
