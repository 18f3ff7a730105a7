"""What ``papa report`` does: build a finished study's report again from what the store holds."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from flows.build import build_graph
from flows.inputs import check_inputs
from flows.progress import StudyProgress
from flows.stored import StoredSteps
from papa.errors import SpecError
from papa.progress import silent
from papa.spec import StudySpec
from papa.storage.artifacts import remove
from papa.workers import WorkerPool
from tasks.aggregate import Aggregate
from tasks.mlflow_client import tracking_address
from tasks.step import Session
from tasks.store import Store


def rebuild_report(study: StudySpec, store: Store, console: Console) -> Path:
    """Write the report of a study again, and print where it is.

    Nothing else is computed. MLflow gets it with the next ``papa run``.

    Raises:
        SpecError: steps of the study are not finished; the message says what is there.
    """
    inputs = check_inputs(study)
    graph = build_graph(inputs.study, inputs, tracking_address(store))
    stored = StoredSteps(graph, store)
    step = next((one for one in stored.steps.values() if isinstance(one, Aggregate)), None)
    if step is None:
        raise SpecError(_unfinished(study.name, stored))
    store.make()
    remove(step.folder(store))
    with WorkerPool(1) as pool, StudyProgress(lambda _: None) as progress:
        step.run(Session(store, pool, study.execution, progress), silent)
    folder = store.study(study.name)
    console.print(f"report   {folder}/report.md (and report.html)", soft_wrap=True, highlight=False)
    return folder


def _unfinished(study: str, stored: StoredSteps) -> str:
    cells, nodes = stored.graph.cells, stored.graph.nodes[:-2]
    steps = sum(node in stored.references for node in nodes)
    if not steps:
        return f"study '{study}' has not been run in this store: run 'papa run' on it first, or give its --store"
    return (
        f"study '{study}' is not finished: {len(stored.cells)} of {len(cells)} cells and {steps} of {len(nodes)} steps "
        "are there: run 'papa run' on it to go on, or 'papa heads' to see what its cells say already"
    )
