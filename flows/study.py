"""The Prefect flow of a study: every step as soon as what it builds on is there.

The command line hands it a study that can start; a Prefect worker has its parameters alone.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from prefect import Flow, flow, get_run_logger
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run
from prefect.states import State
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from flows.check import check_study
from flows.environment import quiet_engines
from flows.flow_runs import FLOW, describe_run, mark_crashed_runs, publish_report
from flows.progress import StudyProgress
from flows.startup import ReadyStudy, ready_study
from flows.studies import save_end
from papa.errors import PapaError
from papa.processes import Process
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.storage.artifacts import read_metadata
from papa.study.aggregate import Aggregate, place_results
from papa.study.costs import measured_rates, seconds_of
from papa.study.step import Session, Step
from papa.study.store import Store, announced
from tasks.perform import CACHED, reason, submit
from tasks.shown import page_link, run_links
from tasks.track import Track, logged_runs

_THREADS = 512


class StudyError(PapaError):
    """Some cells of a study failed; what the others found is kept."""


def study_flow(ready: ReadyStudy | None = None) -> Flow[..., str]:
    """The flow of a study: of one that was loaded and checked before Prefect was imported, which
    can be no parameter, as Prefect records those; else of what its parameters say.
    """

    @flow(
        name=FLOW,
        flow_run_name="{study}",
        # Prefect types its own runner by a future of its own.
        task_runner=ThreadPoolTaskRunner(max_workers=_THREADS),  # type: ignore[arg-type]
        persist_result=False,
        # Else Prefect asks its server, and so a store's database, for one.
        result_storage=Path(os.devnull),
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
            study: Path of the study's YAML file, such as studies/demo.yaml; relative to the working
                directory of the worker that runs it.
            overrides: Values laid over the file, each as a.b=value; such as seeds=[0] or
                tasks.0.slots=64.
            store: Where artifacts and results are kept: a folder, or an address such as
                s3://bucket/papa. Without it the worker's PAPA_STORE, else ./papa-store.
            workers: How many Ray workers; without it what the study says, else one for each CPU
                core or GPU.
            ray_address: A Ray cluster: host:port on one of its nodes, or ray://host:10001 from
                elsewhere. Without it what the study says, else the worker's RAY_ADDRESS, else its
                own machine.

        Returns:
            The folder of its results.

        Raises:
            StudyError: a cell failed; the message names the first and its reason.
            PapaError: the study cannot start.
        """
        spec = ready.spec if ready else load_study(Path(study), overrides or ())
        mark_crashed_runs()
        encoders = (encoder.name for encoder in spec.encoders)
        tags = [*flow_run.tags, spec.name, *encoders, *(task.name for task in spec.tasks)]
        describe_run(UUID(flow_run.id), spec.name, tags)
        with (
            nullcontext(ready)
            if ready
            else _from_parameters(spec, store, workers, ray_address) as started
        ):
            folder = started.store.study(spec.name)
            try:
                _run_and_publish(started, folder)
            except BaseException as error:
                save_end(started.store, spec.name, error)
                started.outcome.set_exception(error)
                raise
            save_end(started.store, spec.name, None)
            started.outcome.set_result(str(folder))
            return str(folder)

    return run_study


run_study = study_flow()
"""What infra/prefect.yaml deploys."""


def _from_parameters(
    spec: StudySpec, address: str | None, workers: int | None, ray_address: str | None
) -> AbstractContextManager[ReadyStudy]:
    """What the command line does before the flow."""
    quiet_engines()
    store = Store(address or os.environ.get("PAPA_STORE") or "papa-store")
    store.make()
    checked = check_study(spec, store, workers=workers, ray_address=ray_address)
    progress = StudyProgress(lambda _: None)
    return ready_study(checked, store, progress, workers=workers, ray_address=ray_address)


def _run_and_publish(ready: ReadyStudy, folder: Path) -> None:
    steps, store, rates = ready.steps.steps, ready.store, measured_rates(ready.store)
    ready.progress.log = get_run_logger().info
    with ready.progress as progress, announced(store, str(Process.this())) as alive:
        progress.plan({step.name: seconds_of(step.stage, step.flops, rates) for step in steps})
        (track,) = (step for step in steps if isinstance(step, Track))
        track.forget_lost(store)
        run_steps(ready, alive)
        document = logged_runs(track, store)
        publish_report(ready.spec.name, folder, document)
        if charts := run_links(document).get(ready.spec.name):
            ready.links.update(charts=charts, report=page_link(document))


def run_steps(ready: ReadyStudy, alive: Callable[[], None]) -> None:
    """Run every step that can run; docs/architecture.md says why Prefect's runner does not order
    them itself.
    """
    session = Session(
        ready.store, ready.pool, ready.spec.execution, ready.progress, ready.live.epoch
    )
    order = TopologicalSorter({step: step.needs for step in ready.steps.steps})
    order.prepare()
    states: dict[Step, State[Any]] = {}
    running: dict[PrefectFuture[Any], Step] = {}
    failures: dict[str, str] = {}
    # Prefect's own as_completed looks at every running step each time.
    ended: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
    while order.is_active():
        for step in order.get_ready():
            future = submit(step, session, [states[need] for need in step.needs])
            running[future] = step
            future.add_done_callback(ended.put)
        if not running:
            break
        future = ended.get()
        step = running.pop(future)
        result = future.result(raise_on_failure=False)
        state = future.state
        if state.is_completed():
            states[step] = state
            order.done(step)
            _tell_end(ready, step, cached=state.name == CACHED)
        else:
            failures[step.name] = reason(result)
            ready.progress.failed(step.name, reason(result))
            ready.live.failed(step.name)
        alive()
    if failures:
        name, why = next(iter(failures.items()))
        others = f"{len(failures) - 1} more failed as well; " if len(failures) > 1 else ""
        raise StudyError(f"{name} failed: {why} ({others}finished cells are kept)")


def _tell_end(ready: ReadyStudy, step: Step, *, cached: bool) -> None:
    found = step.reference(ready.store)
    if step.stage == Aggregate.stage:
        place_results(ready.store, ready.spec.name, found)
    ready.progress.finished(step.name, cached=cached)
    ready.live.finished(step.name, found)
    if step.stage == "tokenise":
        for sentence in read_metadata(found.path)["notes"].get("warnings", ()):
            ready.progress.warned(step.name, sentence)
