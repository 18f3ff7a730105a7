"""The flow of a study: every step as soon as what it builds on is there.

The command line calls it with what it made ready; a Prefect worker starts it with its parameters alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from prefect import flow, get_run_logger
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from flows.check import check_study
from flows.costs import measured_rates, seconds_of
from flows.environment import quiet_engines
from flows.graph import Graph, Node
from flows.processes import FLOW, Process, mark_crashed_runs, name_driver
from flows.progress import StudyProgress
from flows.ready import Ready, given, made_ready
from flows.shown import show_report
from papa.errors import PapaError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.storage.artifacts import ArtifactReference, read_metadata, verify
from tasks.locks import announced
from tasks.mlflow_client import tracking_address, without_password
from tasks.perform import reason, submit
from tasks.step import Session
from tasks.store import Store
from tasks.track import RUNS, run_links

_THREADS = 512


class StudyError(PapaError):
    """Some cells of a study failed; what the others found is kept."""


@dataclass(frozen=True)
class Outcome:
    """What a finished study leaves.

    Attributes:
        folder: its results.
        tracking: MLflow's tracking URI, without password.
        cached: steps that were there already.
        computed: steps that ran.
        workers_started: whether any work was done.
    """

    folder: str
    tracking: str
    cached: int
    computed: int
    workers_started: bool


def _run_name() -> str:
    parameters = flow_run.parameters
    try:
        return load_study(Path(parameters["study"]), parameters.get("overrides") or ()).name
    except PapaError:
        return Path(parameters["study"]).stem


@flow(
    name=FLOW,
    flow_run_name=_run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=_THREADS),
    persist_result=False,
)
def run_study(
    study: str,
    overrides: list[str] | None = None,
    store: str | None = None,
    workers: Annotated[int, Field(gt=0)] | None = None,
    ray_address: str | None = None,
) -> dict[str, Any]:
    """Run a study to its end. What is finished already is not computed again.

    Args:
        study: Path of the study's YAML file, such as studies/demo.yaml; relative to the working directory of the
            worker that runs it.
        overrides: Values laid over the file, each as a.b=value; such as seeds=[0] or tasks.0.slots=64.
        store: Where artifacts and results are kept: a folder, or an address such as s3://bucket/papa. Without it
            the worker's PAPA_STORE, else ./papa-store.
        workers: How many Ray workers; without it what the study says, else one for each CPU core or GPU.
        ray_address: A Ray cluster: host:port on one of its nodes, or ray://host:10001 from elsewhere. Without it what
            the study says, else the worker's RAY_ADDRESS, else its own machine.

    Returns:
        The fields of ``Outcome``.

    Raises:
        StudyError: a cell failed; the message names the first and its reason.
        PapaError: the study cannot start.
    """
    spec = load_study(Path(study), overrides or ())
    mark_crashed_runs()
    name_driver(UUID(flow_run.id), [*flow_run.tags, *_tags(spec)])
    place = Store(store or os.environ.get("PAPA_STORE") or "papa-store")
    place.make()
    handed = given.get()
    with (
        nullcontext(handed) if handed else _by_itself(spec, place, workers, ray_address) as ready,
        ready.shown as shown,
        announced(place, str(Process.this())) as alive,
    ):
        graph, pool = ready.graph, ready.pool
        rates = measured_rates(place)
        shown.plan({node.name: seconds_of(node.stage, node.flops, rates) for node in graph.nodes})
        run = _Run(graph, Session(place, pool, spec.execution, shown), shown, alive)
        run.to_the_end()
        tracked = run.found[graph.nodes[-1]].folder
        verify(tracked, RUNS)
        runs = json.loads((tracked / RUNS).read_text())
        show_report(spec.name, place.study(spec.name), run_links(runs))
        outcome = Outcome(
            folder=str(place.study(spec.name)),
            tracking=without_password(tracking_address(place)),
            cached=run.cached,
            computed=run.computed,
            workers_started=pool.started,
        )
    return asdict(outcome)


def _by_itself(
    spec: StudySpec, place: Store, workers: int | None, ray_address: str | None
) -> AbstractContextManager[Ready]:
    """What the command line does before the flow, where a worker started it: progress goes to the run's log."""
    quiet_engines()
    shown = StudyProgress(get_run_logger().info)
    checked = check_study(spec, place, workers=workers, ray_address=ray_address)
    return made_ready(checked, place, shown, workers=workers, ray_address=ray_address)


def _tags(spec: StudySpec) -> list[str]:
    """What a person filters runs by: the study, its encoders, its tasks."""
    return [spec.name, *(encoder.name for encoder in spec.encoders), *(task.name for task in spec.tasks)]


class _Run:
    """Submits nodes as soon as their needs are met; nodes whose steps have one key share one task run."""

    def __init__(self, graph: Graph, session: Session, shown: StudyProgress, alive: Callable[[], None]) -> None:
        self.session, self.shown, self.alive = session, shown, alive
        self.waiting = list(graph.nodes)
        self.found: dict[Node, ArtifactReference] = {}
        self.failures: dict[str, str] = {}
        self.by_key: dict[str, PrefectFuture[Any]] = {}
        self.of_node: dict[Node, PrefectFuture[Any]] = {}
        self.running: dict[PrefectFuture[Any], list[Node]] = {}
        self.cached = self.computed = 0

    def to_the_end(self) -> None:
        """Run everything that can run.

        Raises:
            StudyError: something could not.
        """
        self._submit_ready()
        while self.running:
            self._take(next(iter(as_completed(list(self.running)))))
            self._submit_ready()
        if self.failures:
            raise StudyError(_told(self.failures))

    def _submit_ready(self) -> None:
        for node in [node for node in self.waiting if all(need in self.found for need in node.needs)]:
            self.waiting.remove(node)
            try:
                step = node.step([self.found[need] for need in node.needs])
                if step.key not in self.by_key:
                    self.by_key[step.key] = submit(step, self.session, [self.of_node[need] for need in node.needs])
            except PapaError as error:
                self._fail(node, str(error))
                continue
            future = self.of_node[node] = self.by_key[step.key]
            self.running.setdefault(future, []).append(node)

    def _take(self, future: PrefectFuture[Any]) -> None:
        self.alive()
        nodes = self.running.pop(future)
        result = future.result(raise_on_failure=False)
        state = future.state
        for node in nodes:
            if not state.is_completed():
                self._fail(node, reason(result))
                continue
            self.found[node] = self.session.store.reference(result["stage"], result["key"])
            self.shown.finished(node.name, cached=state.name == "Cached")
            if node.stage == "tokenise":
                for sentence in read_metadata(self.found[node].path)["notes"].get("warnings", ()):
                    self.shown.warned(node.name, sentence)
        if state.name == "Cached":
            self.cached += 1
        elif state.is_completed():
            self.computed += 1

    def _fail(self, node: Node, reason: str) -> None:
        self.failures[node.name] = reason
        self.shown.failed(node.name, reason)


def _told(failures: Mapping[str, str]) -> str:
    name, reason = next(iter(failures.items()))
    others = len(failures) - 1
    also = f" ({others} more failed as well; finished cells are kept)" if others else " (finished cells are kept)"
    return f"{name} failed: {reason}{also}"
