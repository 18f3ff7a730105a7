"""A study as a Prefect flow: tokenise → average → rank → probe → aggregate.

Steps are submitted stage by stage, each after those that it reads; Prefect orders them, runs them
and repeats those that failed. The artifact store is the cache: what is complete there is not
computed again, and nothing that Prefect recorded is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote
from pydantic import PositiveInt

from flows.check import Checked, check_study
from flows.environment import settle_environment
from flows.flow_runs import FLOW, begin_run, mark_interrupted, publish_report
from flows.progress import StudyProgress
from flows.studies import failure_kept
from papa.errors import PapaError
from papa.spec.file import load_study
from papa.study.run import Session
from papa.study.step import Step
from papa.study.store import Store, announced
from papa.workers import WorkerPool
from tasks.aggregate import aggregate
from tasks.answer import answer
from tasks.average import average
from tasks.baseline import baseline
from tasks.constants import constants
from tasks.probe import probe
from tasks.rank import rank
from tasks.stage import StudyRun
from tasks.tokenise import tokenise
from tasks.tracking import Tracking

STAGES = {
    tokenise: ("tokenise",),
    average: ("average",),
    constants: ("given", "mean_qk", "outputs", "relative"),
    rank: ("rank", "frozen_probe", "scores"),
    baseline: ("baseline",),
    probe: ("probe",),
    answer: ("answers", "own"),
    aggregate: ("aggregate",),
}
"""The tasks in the order in which they are submitted, and the stages of the steps of each."""


@dataclass(frozen=True)
class Ready:
    """A study that was checked, who shows it, and what became of it: its link in MLflow, or why it
    failed.
    """

    checked: Checked
    store: Store
    progress: StudyProgress
    outcome: Future[str] = field(default_factory=Future)


ready: ContextVar[Ready] = ContextVar("ready")
"""What the command line checked before there was a server; no parameter, as Prefect records those.
"""


@flow(
    name=FLOW,
    flow_run_name="{study}",
    # Prefect types its own runner by a future of its own.
    task_runner=ThreadPoolTaskRunner(max_workers=512),  # type: ignore[arg-type]
    persist_result=False,
    # Else Prefect asks its server for one.
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
            it the worker's RAY_ADDRESS, else its own machine.
    """
    given = ready.get(None) or _checked(study, overrides or (), store, workers, ray_address)
    opened, spec = given.store, given.checked.inputs.study
    begin_run(spec)
    given.progress.endings.append(partial(mark_interrupted, flow_run.id))
    try:
        with failure_kept(opened, spec.name):
            given.outcome.set_result(_run(given))
    except BaseException as error:
        given.outcome.set_exception(error)
        raise
    publish_report(opened.study(spec.name), given.outcome.result())
    return str(opened.study(spec.name))


def _checked(
    study: str,
    overrides: Sequence[str],
    store: str | None,
    workers: int | None,
    ray_address: str | None,
) -> Ready:
    settle_environment()
    opened = Store(store or os.environ.get("PAPA_STORE") or "papa-store")
    opened.make()
    spec = load_study(Path(study), overrides)
    checked = check_study(spec, opened, workers=workers, ray_address=ray_address)
    return Ready(checked, opened, StudyProgress(lambda _: None))


def _run(given: Ready) -> str:
    """Run every step of a study; returns its link in MLflow."""
    checked, store, progress = given.checked, given.store, given.progress
    spec, steps = checked.inputs.study, checked.steps
    progress.steps, progress.log = len(steps.steps), get_run_logger().info
    pool = WorkerPool(
        checked.workers,
        spec.execution.device,
        store.scratch,
        address=checked.cluster,
        shared=not store.is_remote,
    )
    with progress, announced(store) as alive, pool:
        progress.endings.append(pool.abandon)
        if checked.to_run:
            # First: what they import takes longest.
            pool.begin()
        with Tracking(store, spec, steps, progress.noted) as tracking:
            # Before workers go: what fails without them is no failure of the study.
            progress.endings.insert(0, partial(setattr, tracking, "interrupted", True))
            progress.endings.append(partial(tracking.end, "KILLED"))
            run = StudyRun(
                Session(store, pool, spec.execution, progress, tracking.epoch),
                tracking,
                progress,
                alive,
            )
            _submit(steps.steps, run)
            if run.failures:
                name, why = next(iter(run.failures.items()))
                others = len(run.failures) - 1
                more = f"{others} more failed as well; " if others else ""
                raise PapaError(f"{name} failed: {why} ({more}finished cells are kept)")
            return tracking.link


def _submit(steps: Sequence[Step], run: StudyRun) -> None:
    """Submit steps stage by stage, each after those that it reads, and wait for all."""
    futures: dict[Step, PrefectFuture[Any]] = {}
    for named, stages in STAGES.items():
        for step in (step for step in steps if step.stage in stages):
            needs = [futures[need] for need in step.needs]
            # Quoted: Prefect would look for futures in every cell that a step names, twice.
            futures[step] = named.submit(quote(step), quote(run), wait_for=needs)
    wait(list(futures.values()))
