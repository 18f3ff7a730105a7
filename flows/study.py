"""The flow of a study: every step as soon as what it builds on is there."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner
from rich.console import Console

from flows.build import build_graph
from flows.costs import measured_rates, seconds_of
from flows.graph import Graph, Node
from flows.inputs import StudyInputs, check_inputs
from flows.leftovers import mark_crashed_runs, name_driver
from flows.progress import StudyProgress
from papa.artifacts import ArtifactReference
from papa.errors import PapaError
from papa.study_file import load_study
from papa.workers import WorkerPool
from tasks.perform import submit
from tasks.session import Session
from tasks.store import Store
from tasks.tracking import tracking_address, without_password

_THREADS = 512


@dataclass(frozen=True)
class Given:
    """What a caller in the same process hands to the flow.

    Attributes:
        inputs: the study's checked inputs.
        shown: where progress is shown.
    """

    inputs: StudyInputs
    shown: StudyProgress


given: ContextVar[Given | None] = ContextVar("given", default=None)
"""What the command line did already; flows started by others do it themselves."""


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
    name="papa-study",
    flow_run_name=_run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=_THREADS),
    persist_result=False,
)
def run_study(
    study: str, overrides: list[str] | None = None, store: str = "papa-store", workers: int | None = None
) -> dict[str, Any]:
    """Run a study to its end.

    Args:
        study: the path of its YAML file.
        overrides: ``a.b=value``, applied over the file.
        store: the store folder.
        workers: how many; None takes the specification's.

    Returns:
        The fields of ``Outcome``.

    Raises:
        StudyError: a cell failed; the message names the first and its reason.
        PapaError: the study cannot start.
    """
    spec = load_study(Path(study), overrides or ())
    mark_crashed_runs()
    name_driver(UUID(flow_run.id), [*flow_run.tags, spec.name])
    place = Store(Path(store))
    place.make()
    address = tracking_address(place)
    ready = given.get() or Given(check_inputs(spec), StudyProgress(Console(stderr=True)))
    graph, shown = build_graph(spec, ready.inputs, address), ready.shown
    execution = spec.execution
    with WorkerPool(workers or execution.workers, execution.device, place.scratch) as pool, shown:
        rates = measured_rates(place)
        shown.plan({node.name: seconds_of(node.stage, node.flops, rates) for node in graph.nodes})
        run = _Run(graph, Session(place, pool, execution, shown), shown)
        run.to_the_end()
        outcome = Outcome(
            folder=str(place.study(spec.name)),
            tracking=without_password(address),
            cached=run.cached,
            computed=run.computed,
            workers_started=pool.started,
        )
    return asdict(outcome)


class _Run:
    """Submits nodes as soon as their needs are met; nodes whose steps have one key share one task run."""

    def __init__(self, graph: Graph, session: Session, shown: StudyProgress) -> None:
        self.session, self.shown = session, shown
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
        nodes = self.running.pop(future)
        result = future.result(raise_on_failure=False)
        state = future.state
        for node in nodes:
            if not state.is_completed():
                self._fail(node, _reason(result))
                continue
            self.found[node] = self.session.store.reference(result["stage"], result["key"])
            self.shown.finished(node.name, cached=state.name == "Cached")
        if state.name == "Cached":
            self.cached += 1
        elif state.is_completed():
            self.computed += 1

    def _fail(self, node: Node, reason: str) -> None:
        self.failures[node.name] = reason
        self.shown.failed(node.name, reason)


def _reason(error: Any) -> str:
    if isinstance(error, PapaError):
        return str(error)
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[-1] if text else 'no message'} (papa run --verbose tells more)"


def _told(failures: Mapping[str, str]) -> str:
    name, reason = next(iter(failures.items()))
    others = len(failures) - 1
    also = f" ({others} more failed as well; finished cells are kept)" if others else " (finished cells are kept)"
    return f"{name} failed: {reason}{also}"
