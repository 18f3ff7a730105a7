"""The stages of the pipeline as Prefect tasks.

Prefect shows states, durations and logs, and retries; the artifact store is the cache. Prefect
keeps no results: its record could name another step's artifact, or a pickle, which it would run.
"""

import base64
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import Any

import httpx
from prefect import Task, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.runtime import task_run
from prefect.states import Completed, State
from prefect.utilities.annotations import quote

from papa.errors import PapaError, TransientError, in_short
from papa.flows.progress import StudyProgress
from papa.reporting.tables import summary_markdown
from papa.scores.summary import read_table
from papa.tasks.aggregate import aggregate
from papa.tasks.mlflow import Tracking
from papa.tasks.run import Session, run_once
from papa.tasks.step import Stage, Step, StepGroup, group_by_seed
from papa.tasks.study_files import place_results

_RETRY_SECONDS = [5.0, 30.0]
"""The delay before each retry of a failed step."""
_CONCURRENT_CHECKS = 16
"""How many finished steps are checked in the store at a time."""


@dataclass(eq=False)
class StudyRun(Session):
    """What the steps of a run of a study share.

    Attributes:
        reporter: Shows how far the study is.
        tracking: The study's run in MLflow.
        failures: The error of each step that failed for good, by its name.
    """

    reporter: StudyProgress
    tracking: Tracking = field(kw_only=True)
    failures: dict[str, Exception] = field(default_factory=dict)


def run_steps(
    steps: Sequence[Step], run: StudyRun, *, missing: Collection[Step], workers: int
) -> None:
    """Submit each step to Prefect once its inputs are finished and one of ``workers`` is free for
    it.

    So a step that Prefect shows as running does run, and its duration includes no waiting, unless a
    step that uses all workers runs at the same time. Such a step is not exclusive: it takes one of
    ``workers``, and its calls compete with other steps for idle workers.

    Seeds that run in one call are one task run. Of the steps that can run, those go first whose
    results most other steps read. Steps that are not ``missing`` are only checked in the store.
    """
    groups = group_by_seed(steps)
    group_of = {step: group for group in groups for step in group.steps}
    inputs_of = {group: {group_of[needed] for needed in group.inputs} for group in groups}
    dependents = Counter(needed for inputs in inputs_of.values() for needed in inputs)
    to_compute = {group_of[step] for step in missing}
    sorter = TopologicalSorter(inputs_of)
    sorter.prepare()
    ready: list[StepGroup] = []
    futures: dict[StepGroup, PrefectFuture[Any]] = {}
    submitted: dict[PrefectFuture[Any], StepGroup] = {}
    ended: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
    running: set[StepGroup] = set()
    while sorter.is_active():
        ready.extend(sorter.get_ready())
        ready.sort(key=lambda group: -dependents[group])
        waiting: list[StepGroup] = []
        for group in ready:
            limit = workers if group in to_compute else _CONCURRENT_CHECKS
            same_kind = running & to_compute if group in to_compute else running - to_compute
            if len(same_kind) >= limit:
                waiting.append(group)
                continue
            running.add(group)
            future = prefect_task(group.first.stage).submit(
                # Quoted: Prefect would look for futures in every cell that a step names.
                quote(group),
                quote(run),
                wait_for=[futures[needed] for needed in inputs_of[group]],
            )
            # Prefect calls it from another thread.
            future.add_done_callback(ended.put)
            futures[group] = future
            submitted[future] = group
        ready = waiting
        group = submitted[ended.get()]
        running.remove(group)
        # Also of a failed step: Prefect starts no step of which an input failed.
        sorter.done(group)


@lru_cache
def prefect_task(stage: Stage) -> Task[..., State[Any]]:
    """Return a stage as a Prefect task, which runs the steps of a group once.

    It has no tags: Prefect asks its server for each tagged task run whether it may start.
    """

    def run_group(group: StepGroup, run: StudyRun) -> State[Any]:
        try:
            was_run = run_once(group, run)
            if stage is aggregate:
                publish_results(group.first, run)
            for step in group.steps:
                run.tracking.log_step(step)
        except Exception as error:
            reason = failure_sentence(error)
            if is_worth_retrying(error) and task_run.run_count <= len(_RETRY_SECONDS):
                run.reporter.note(group.name, f"will be tried again: {reason}")
            else:
                run.reporter.note(group.name, f"failed: {reason}")
                run.failures[group.name] = error
            raise
        run.reporter.finished(group.name, was_run, len(group.steps))
        return Completed() if was_run else Completed(name="Cached")

    return task(
        name=stage.name,
        description=stage.__doc__,
        task_run_name="{group.name}",
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(_RETRY_SECONDS),
        retry_delay_seconds=_RETRY_SECONDS,
        retry_condition_fn=lambda _task, _run, state: is_worth_retrying(state.data),
    )(run_group)


def failure_sentence(error: BaseException) -> str:
    """Return why a step failed, in one sentence."""
    if isinstance(error, PapaError):
        return str(error)
    return f"{in_short(error)} (papa run --verbose shows more)"


def first_failure(failures: Mapping[str, Exception]) -> PapaError:
    """Return the error of a study's first step that failed, in its class; it names the step and
    says how many others failed.
    """
    name, error = next(iter(failures.items()))
    failure = error
    if not isinstance(failure, PapaError):
        failure = PapaError(failure_sentence(error))
        failure.__cause__ = error
    count = len(failures) - 1
    failure.step = name
    failure.kept = f"{count} more failed; " if count else ""
    failure.kept += "finished cells are kept"
    return failure


def is_worth_retrying(error: object) -> bool:
    """Return whether another try may help: not after errors that a user has to correct."""
    return isinstance(error, TransientError) or not isinstance(error, PapaError)


def publish_results(step: Step, run: StudyRun) -> None:
    """Put a study's results where people look for them: its folder, MLflow and Prefect's page."""
    store = run.store
    study = run.tracking.study.name
    artifact = step.reference(store)
    place_results(store, study, artifact)
    run.tracking.log_results(artifact)
    folder = store.study_path(study)
    # A data URI: Prefect's pages show no other address that every reader reaches.
    image = base64.b64encode((folder / "scores.png").read_bytes()).decode()
    report = f"`{folder}/report.html`"
    links = f"{report} · {run.tracking.link}" if run.tracking.link else report
    table = summary_markdown(read_table(folder / "summary.csv"))
    text = f"# {study}\n\n{links}\n\n{table}\n![Scores](data:image/png;base64,{image})\n"
    try:
        create_markdown_artifact(text, re.sub("[^a-z0-9]+", "-", f"papa-{study}-report".lower()))
    except (httpx.HTTPError, RuntimeError) as error:
        # The study is finished all the same.
        get_run_logger().warning("Prefect's server took no report: %s", error)
