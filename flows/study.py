"""The Prefect flow of a study: every step as soon as what it builds on is there, and the report as a Prefect artifact.

The command line hands it a study that can start; a Prefect worker has its parameters alone.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import httpx
from prefect import Flow, flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run
from prefect.states import State
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from flows.check import check_study
from flows.costs import measured_rates, seconds_of
from flows.environment import quiet_engines
from flows.graph import Node
from flows.processes import FLOW, Process, describe_run, mark_crashed_runs
from flows.progress import StudyProgress
from flows.startup import ReadyStudy, ready_study
from papa.errors import DamagedError, PapaError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.storage.artifacts import ArtifactReference, read_metadata, remove, verify
from tasks.locks import announced
from tasks.perform import reason, submit
from tasks.step import Session
from tasks.store import Store
from tasks.track import RUNS, page_link, run_links

_THREADS = 512
_FIGURE = re.compile(r"\((?P<name>\w+)\.svg\)")


class StudyError(PapaError):
    """Some cells of a study failed; what the others found is kept."""


def study_flow(ready: ReadyStudy | None = None) -> Flow[..., str]:
    """The flow of a study.

    Args:
        ready: the study, where it was loaded and checked before Prefect was imported. Prefect records a flow's
            parameters, so it cannot be one of them. None makes it from the parameters when the flow runs.
    """

    @flow(
        name=FLOW,
        flow_run_name="{study}",
        # Prefect types its own runner by a future of its own.
        task_runner=ThreadPoolTaskRunner(max_workers=_THREADS),  # type: ignore[arg-type]
        persist_result=False,
    )
    def run_study(
        study: str,
        overrides: list[str] | None = None,
        store: str | None = None,
        workers: Annotated[int, Field(gt=0)] | None = None,
        ray_address: str | None = None,
    ) -> str:
        """Run a study to its end. What is finished already is not computed again.

        Args:
            study: Path of the study's YAML file, such as studies/demo.yaml; relative to the working directory of the
                worker that runs it.
            overrides: Values laid over the file, each as a.b=value; such as seeds=[0] or tasks.0.slots=64.
            store: Where artifacts and results are kept: a folder, or an address such as s3://bucket/papa. Without it
                the worker's PAPA_STORE, else ./papa-store.
            workers: How many Ray workers; without it what the study says, else one for each CPU core or GPU.
            ray_address: A Ray cluster: host:port on one of its nodes, or ray://host:10001 from elsewhere. Without it
                what the study says, else the worker's RAY_ADDRESS, else its own machine.

        Returns:
            The folder of its results.

        Raises:
            StudyError: a cell failed; the message names the first and its reason.
            PapaError: the study cannot start.
        """
        spec = ready.spec if ready else load_study(Path(study), overrides or ())
        mark_crashed_runs()
        describe_run(UUID(flow_run.id), spec.name, [*flow_run.tags, *_tags(spec)])
        with nullcontext(ready) if ready else _from_parameters(spec, store, workers, ray_address) as started:
            _run_steps(started)
            return str(started.store.study(spec.name))

    return run_study


run_study = study_flow()
"""What infra/prefect.yaml deploys."""


def _from_parameters(
    spec: StudySpec, address: str | None, workers: int | None, ray_address: str | None
) -> AbstractContextManager[ReadyStudy]:
    """What the command line does before the flow; progress goes to the flow run's log."""
    quiet_engines()
    store = Store(address or os.environ.get("PAPA_STORE") or "papa-store")
    store.make()
    progress = StudyProgress(get_run_logger().info)
    checked = check_study(spec, store, workers=workers, ray_address=ray_address)
    return ready_study(checked, store, progress, workers=workers, ray_address=ray_address)


def _tags(spec: StudySpec) -> list[str]:
    """What a person filters runs by: the study, its encoders, its tasks."""
    return [spec.name, *(encoder.name for encoder in spec.encoders), *(task.name for task in spec.tasks)]


def _run_steps(ready: ReadyStudy) -> None:
    nodes, store, rates = ready.graph.nodes, ready.store, measured_rates(ready.store)
    with ready.progress as progress, announced(store, str(Process.this())) as alive:
        progress.plan({node.name: seconds_of(node.stage, node.flops, rates) for node in nodes})
        done = _Steps(ready, alive).run()
        _publish_report(ready.spec.name, store.study(ready.spec.name), done[nodes[-1]].folder)


class _Steps:
    """Submits each step to Prefect once those it builds on are done.

    Prefect's runner could order the steps by their futures, but not share them: a step's key holds the digests of what
    it builds on, and only then is it known which nodes have one key, and so one task run, and whether Prefect's record
    of it still has its artifact.
    """

    def __init__(self, ready: ReadyStudy, alive: Callable[[], None]) -> None:
        self.session = Session(ready.store, ready.pool, ready.spec.execution, ready.progress)
        self.progress, self.alive = ready.progress, alive
        self.missing = {node: len(set(node.needs)) for node in ready.graph.nodes}
        self.dependents: dict[Node, list[Node]] = defaultdict(list)
        for node in ready.graph.nodes:
            for need in dict.fromkeys(node.needs):
                self.dependents[need].append(node)
        self.by_key: dict[str, PrefectFuture[Any]] = {}
        self.keys: dict[Node, str] = {}
        self.states: dict[Node, State[Any]] = {}
        self.running: dict[PrefectFuture[Any], list[Node]] = {}
        self.ended: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
        self.done: dict[Node, ArtifactReference] = {}
        self.failures: dict[str, str] = {}
        self.begun: set[Node] = set()
        self.remade: set[str] = set()
        self.repeated: set[Node] = set()

    def run(self) -> dict[Node, ArtifactReference]:
        """Run everything that can run.

        Raises:
            StudyError: something could not.
        """
        self._submit([node for node, missing in self.missing.items() if not missing])
        while self.running:
            # Prefect's own as_completed looks at every running step each time.
            finished = self._finish(self.ended.get())
            self.alive()
            self._submit(finished)
        if self.failures:
            raise StudyError(_failure_sentence(self.failures))
        return self.done

    def _submit(self, nodes: Sequence[Node]) -> None:
        """Submit steps all of whose inputs are done."""
        ready = list(nodes)
        for node in ready:
            self.begun.add(node)
            try:
                step = node.step([self.done[need] for need in node.needs])
                self.keys[node] = step.key
                future = self.by_key.get(step.key)
                if future is None:
                    future = submit(step, self.session, [self.states[need] for need in node.needs])
                    self.by_key[step.key] = future
            except PapaError as error:
                again = self._again([node], error)
                if again is None:
                    self._fail(node, str(error))
                else:
                    # Taken in by the loop.
                    ready += again
                continue
            if future not in self.running:
                self.running[future] = []
                future.add_done_callback(self.ended.put)
            self.running[future].append(node)

    def _finish(self, future: PrefectFuture[Any]) -> list[Node]:
        """Take in what a task run found; returns the nodes that can start by it."""
        result, state = future.result(raise_on_failure=False), future.state
        nodes, ready = self.running.pop(future), list[Node]()
        again = self._again(nodes, result)
        if again is not None:
            return again
        for node in nodes:
            if not state.is_completed():
                self._fail(node, reason(result))
                continue
            done = self.done[node] = self.session.store.reference(result["stage"], result["key"])
            # With its result at hand: Prefect would read it from the disk again for every step that builds on it.
            self.states[node] = state.model_copy(update={"data": result})
            self.progress.finished(node.name, cached=state.name == "Cached")
            if node.stage == "tokenise":
                for sentence in read_metadata(done.path)["notes"].get("warnings", ()):
                    self.progress.warned(node.name, sentence)
            for dependent in self.dependents[node]:
                self.missing[dependent] -= 1
                if not self.missing[dependent] and dependent not in self.begun:
                    ready.append(dependent)
        return ready

    def _again(self, nodes: Sequence[Node], error: object) -> list[Node] | None:
        """Have steps wait, once, until an artifact that they build on and found damaged is made again.

        What lies in the store is looked at before it counts as done; this is for what only the step finds that fetches
        it, or that was damaged meanwhile.

        Returns:
            The nodes that can start now; None where it is no such error.
        """
        if not isinstance(error, DamagedError) or self.repeated & set(nodes):
            return None
        broken: list[Node] = []
        if error.address not in self.remade:
            broken = [node for node, one in self.done.items() if one.path == error.address]
            if not broken:
                return None
            self.remade.add(error.address)
            remove(error.address)
            for node in broken:
                self.progress.damaged(node.name, error.what)
        self.repeated |= set(nodes)
        again = [*broken, *nodes]
        forgotten = {self.keys.pop(node) for node in again if node in self.keys}
        self.by_key = {key: one for key, one in self.by_key.items() if key not in forgotten}
        for node in again:
            self.done.pop(node, None)
        self.begun -= set(again)
        for node in self.missing.keys() - self.begun:
            self.missing[node] = sum(need not in self.done for need in set(node.needs))
        return [node for node in again if not self.missing[node]]

    def _fail(self, node: Node, reason: str) -> None:
        self.failures[node.name] = reason
        self.progress.failed(node.name, reason)


def _failure_sentence(failures: Mapping[str, str]) -> str:
    name, reason = next(iter(failures.items()))
    others = len(failures) - 1
    also = f" ({others} more failed as well; finished cells are kept)" if others else " (finished cells are kept)"
    return f"{name} failed: {reason}{also}"


def _publish_report(study: str, folder: Path, tracked: Path) -> None:
    """Keep a study's report as a Prefect artifact of the flow run, with its figures and links to the tracked runs.

    Where Prefect's server does not answer just then, the study is finished all the same.

    Args:
        study: the study's name.
        folder: its results.
        tracked: the artifact that names its tracked runs.
    """
    report = _FIGURE.sub(lambda figure: f"({_inline(folder / figure['name'])})", (folder / "report.md").read_text())
    verify(tracked, RUNS)
    document = json.loads((tracked / RUNS).read_text())
    title, _, rest = report.partition("\n")
    page = page_link(document)
    where = (
        f"With interactive figures and every head: [report.html]({page})"
        if page
        else f"In full: `{folder}/report.html`"
    )
    runs = " · ".join(f"[{name}]({address})" for name, address in run_links(document).items())
    report = "\n\n".join(filter(None, [title, where, runs and f"Runs in MLflow: {runs}", rest]))
    # A key of Prefect's has lower-case letters, digits and dashes.
    key = re.sub("[^a-z0-9]+", "-", f"papa {study} report".lower())
    try:
        create_markdown_artifact(report, key=key, description=f"Study {study}, kept in {folder}")
    except (httpx.HTTPError, RuntimeError) as error:
        get_run_logger().warning("Prefect's server took no report: %s", error)


def _inline(figure: Path) -> str:
    """A figure as a data URI; Prefect's UI shows no other address that every reader reaches."""
    return f"data:image/png;base64,{base64.b64encode(figure.with_suffix('.png').read_bytes()).decode()}"
