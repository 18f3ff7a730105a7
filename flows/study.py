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
from typing import Any

from prefect import Flow, flow, get_run_logger
from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import PositiveInt

from flows.check import check_study
from flows.environment import quiet_engines
from flows.flow_runs import begin_run, publish_report
from flows.progress import StudyProgress
from flows.server import FLOW
from flows.startup import ReadyStudy, ready_study
from flows.studies import failure_kept
from papa.errors import PapaError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.storage.artifacts import read_metadata
from papa.study.aggregate import place_results
from papa.study.sizes import stage_seconds
from papa.study.step import Session, Step
from papa.study.store import Store, announced
from tasks.perform import CACHED, reason, submit
from tasks.track import logged_runs


def study_flow(ready: ReadyStudy | None = None) -> Flow[..., str]:
    """The flow of a study: of one that was loaded and checked before Prefect was imported, which
    can be no parameter, as Prefect records those; else of what its parameters say.
    """

    @flow(
        name=FLOW,
        flow_run_name="{study}",
        # Prefect types its own runner by a future of its own.
        task_runner=ThreadPoolTaskRunner(max_workers=512),  # type: ignore[arg-type]
        persist_result=False,
        # Else Prefect asks its server, and so a store's database, for one.
        result_storage=Path(os.devnull),
    )
    def run_study(
        study: str,
        overrides: list[str] | None = None,
        store: str | None = None,
        workers: PositiveInt | None = None,
        ray_address: str | None = None,
    ) -> str:
        """Run a study to its end. What is finished already is not computed again.

        Args:
            study: The study's YAML file, relative to the working directory of the worker.
            overrides: Values laid over the file, each as a.b=value, such as tasks.0.slots=64.
            store: Where artifacts and results are kept: a folder, or an address such as
                s3://bucket/papa. Without it the worker's PAPA_STORE, else ./papa-store.
            workers: Ray workers; without it the study's, else one for each CPU core or GPU.
            ray_address: A Ray cluster: host:port on one of its nodes, or ray://host:10001. Without
                it the study's, else the worker's RAY_ADDRESS, else its own machine.
        """
        spec = ready.spec if ready else load_study(Path(study), overrides or ())
        begin_run(spec)
        with nullcontext(ready) if ready else _made(spec, store, workers, ray_address) as started:
            try:
                with failure_kept(started.store, spec.name):
                    _run_and_publish(started)
            except BaseException as error:
                started.outcome.set_exception(error)
                raise
            started.outcome.set_result(None)
            return str(started.store.study(spec.name))

    return run_study


run_study = study_flow()
"""What infra/prefect.yaml deploys."""


def _made(
    spec: StudySpec, address: str | None, workers: int | None, ray_address: str | None
) -> AbstractContextManager[ReadyStudy]:
    """What the command line makes before the flow."""
    quiet_engines()
    store = Store(address or os.environ.get("PAPA_STORE") or "papa-store")
    store.make()
    checked = check_study(spec, store, workers=workers, ray_address=ray_address)
    return ready_study(checked, store, StudyProgress(lambda _: None))


def _run_and_publish(ready: ReadyStudy) -> None:
    steps, store = ready.steps.steps, ready.store
    seconds = {stage: stage_seconds(store, stage) or 1.0 for stage in {one.stage for one in steps}}
    ready.progress.log = get_run_logger().info
    with ready.progress as progress, announced(store) as alive:
        progress.plan({step.name: seconds[step.stage] for step in steps})
        ready.live.track.forget_lost(store)
        _run_steps(ready, alive)
        publish_report(store.study(ready.spec.name), logged_runs(ready.live.track, store))


def _run_steps(ready: ReadyStudy, alive: Callable[[], None]) -> None:
    """Run every step that can run; docs/architecture.md says why Prefect's runner does not order
    them itself.
    """
    store, progress, live = ready.store, ready.progress, ready.live
    session = Session(store, ready.pool, ready.spec.execution, progress, live.epoch)
    order = TopologicalSorter({step: step.needs for step in ready.steps.steps})
    order.prepare()
    futures: dict[Step, PrefectFuture[Any]] = {}
    # Prefect's own as_completed looks at every running step each time.
    ended: queue.SimpleQueue[Step] = queue.SimpleQueue()
    running, failures = 0, dict[str, str]()
    while (begun := order.get_ready()) or running:
        for step in begun:
            future = submit(step, session, [futures[need] for need in step.needs])
            future.add_done_callback(lambda _, step=step: ended.put(step))  # type: ignore[misc]
            futures[step], running = future, running + 1
        step, running = ended.get(), running - 1
        result = futures[step].result(raise_on_failure=False)
        state = futures[step].state
        if state.is_completed():
            order.done(step)
            found = step.reference(store)
            if step.stage == "aggregate":
                place_results(store, ready.spec.name, found)
            progress.finished(step.name, cached=state.name == CACHED)
            live.finished(step.name, found)
            if step.stage == "tokenise":
                for sentence in read_metadata(found.path)["notes"].get("warnings", ()):
                    progress.told(step.name, sentence)
        else:
            failures[step.name] = reason(result)
            progress.failed(step.name, reason(result))
            live.failed(step.name)
        alive()
    if failures:
        name, why = next(iter(failures.items()))
        others = f"{len(failures) - 1} more failed as well; " if len(failures) > 1 else ""
        raise PapaError(f"{name} failed: {why} ({others}finished cells are kept)")
