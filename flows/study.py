"""A study as a Prefect flow: check it, open its workers and its MLflow run, run its pipeline.

``papa.tasks.pipeline`` says which steps there are, ``papa.flows.stages`` submits them as Prefect
tasks. The artifact store is the cache: finished steps are not computed again, and nothing that
Prefect recorded is read.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID

from prefect import flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Crashed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import PositiveInt

from papa.errors import PapaError, SpecError, shown
from papa.files import sha256_of_json
from papa.flows.check import Checked, check_study
from papa.flows.environment import settle_environment, settle_umask
from papa.flows.progress import StudyProgress
from papa.flows.stages import StudyRun, failure_sentence, first_failure, run_steps
from papa.spec import StudySpec
from papa.storage.locks import in_use
from papa.storage.store import Store
from papa.tasks.mlflow import Tracking
from papa.tasks.stored import load_to_run
from papa.tasks.study_files import save_study
from papa.worker import Worker
from papa.workers import Executor, WorkerPool


@dataclass(frozen=True)
class PreparedRun:
    """A study that was checked, and what its run needs.

    Attributes:
        checked: The study, its steps, and which of them are missing.
        store: Where artifacts and results are kept.
        progress: Shows how far the study is.
        executor: Its workers.
        on_interrupt: Called at Ctrl-C, for two seconds in all. The process then ends at once, so no
            ``finally`` of the run is reached.
        outcome: Done when the study ends: the address of its page in MLflow, or its error.
    """

    checked: Checked
    store: Store
    progress: StudyProgress
    executor: Executor
    on_interrupt: list[Callable[[], object]] = field(default_factory=list)
    outcome: Future[str] = field(default_factory=Future)


prepared_run: ContextVar[PreparedRun] = ContextVar("prepared_run")
"""The study that the command line checked; as a parameter Prefect would record it."""


@flow(
    name="papa-study",
    flow_run_name="{study}",
    # A thread for each worker, and for the steps that are only checked (``run_steps``). Prefect
    # types its own runner by a future of its own.
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
    name: str | None = None,
    digest: str | None = None,
) -> str:
    """Run a study to its end. What is finished already is not computed again.

    Args:
        study: The study's YAML file, an absolute path on the worker's machine.
        overrides: Values laid over the file, each as a.b=value, such as tasks.0.slots=64.
        store: Where artifacts and results are kept: a folder as an absolute path, or an address
            such as s3://bucket/papa. Without it the worker's PAPA_STORE.
        workers: Ray workers; without it the study's, else one for each CPU core or GPU.
        ray_address: A Ray cluster: host:port on one of its nodes, or ray://host:10001. Without
            it the worker's RAY_ADDRESS, else its own machine.
        name: The name of the study that was deployed, under which a failure is recorded.
        digest: The digest of the study that was deployed; another study is refused.
    """
    prepared = prepared_run.get(None)
    if prepared is not None:
        return _run_prepared(prepared)
    settle_environment()
    opened = Store(_absolute("store", store or os.environ.get("PAPA_STORE") or "papa-store"))
    settle_umask(opened.root)
    opened.make()
    with ExitStack() as stack:
        if name:
            stack.enter_context(_failure_recorded(opened, name))
        spec = load_to_run(Path(_absolute("study", study)), overrides or ())
        if digest and digest_of(spec) != digest:
            raise SpecError(
                f"{study} has changed since it was deployed (digest {digest_of(spec)[:12]}, "
                f"deployed {digest[:12]}), or PAPA was upgraded: run 'papa deploy' again"
            )
        if not name:
            stack.enter_context(_failure_recorded(opened, spec.name))
        save_study(opened, spec)
        checked = check_study(spec, opened, workers=workers, ray_address=ray_address)
        with start_workers(checked, opened) as executor:
            progress = StudyProgress(len(checked.pipeline.steps))
            return _run_in_prefect(PreparedRun(checked, opened, progress, executor))


def _run_prepared(prepared: PreparedRun) -> str:
    """Run the study that the command line checked; return its results' folder."""
    interrupted = threading.Event()
    prepared.on_interrupt.append(interrupted.set)
    study_name = prepared.checked.inputs.study.name
    try:
        with _failure_recorded(prepared.store, study_name, interrupted.is_set):
            return _run_in_prefect(prepared)
    except PapaError as error:
        # The store may fail before the run does.
        if not prepared.outcome.done():
            prepared.outcome.set_exception(error)
        raise


def digest_of(study: StudySpec) -> str:
    """Return the digest of a study's specification, which a deployment compares."""
    return sha256_of_json(study.model_dump(mode="json"))


def _absolute(parameter: str, path: str) -> str:
    """Return a path of a deployed run, whose working folder is a new one for each run."""
    if "://" in path:
        return path
    expanded = Path(path).expanduser()
    if not expanded.is_absolute():
        raise SpecError(
            f"{parameter}: {shown(path)} is a relative path, and a deployed run has an empty "
            "working folder: give an absolute path (for store, or PAPA_STORE of the worker)"
        )
    return str(expanded)


@contextmanager
def _failure_recorded(
    store: Store, study_name: str, is_interrupted: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Write why the block fails beside the study's results, for ``papa list``, in place of why an
    earlier run did.
    """
    failed = f"{study_name}.failed"
    store.remove_study_file(failed)
    try:
        yield
    except BaseException as error:
        # What fails after Ctrl-C fails because processes are being ended.
        if not is_interrupted():
            store.write_study_file(failed, f"{failure_sentence(error)}\n".encode())
        raise


@contextmanager
def start_workers(checked: Checked, store: Store) -> Iterator[Executor]:
    """Yield the workers of a run; while the block runs the store is in use. Workers begin at once:
    their imports take seconds, in which Prefect's server starts.
    """
    device = checked.inputs.study.execution.device
    with in_use(store, checked.inputs.study.name) as shared, ExitStack() as started:
        executor: Executor
        # One worker is this process: Ray takes seconds to start.
        needs_ray = checked.cluster is not None or (checked.workers != 1 and checked.needs_workers)
        if needs_ray:
            pool = WorkerPool(checked.workers, device, shared, address=checked.cluster)
            executor = started.enter_context(pool)
        else:
            executor = Worker(device)
        if checked.needs_workers:
            executor.begin()
        yield executor


def _run_in_prefect(prepared: PreparedRun) -> str:
    """Name and tag the flow's run in Prefect, and run the study; return its results' folder."""
    spec = prepared.checked.inputs.study
    run = UUID(flow_run.id)
    names = [encoder.name for encoder in spec.encoders] + [task.name for task in spec.tasks]
    with get_client(sync_client=True) as client:
        # Tags given around the flow would go to its task runs, and cost each a request.
        client.update_flow_run(run, name=spec.name, tags=[*flow_run.tags, spec.name, *names])
    prepared.on_interrupt.append(partial(_mark_crashed, run))
    try:
        _run_all_steps(prepared)
    except BaseException as error:
        prepared.outcome.set_exception(error)
        raise
    return str(prepared.store.study_path(spec.name))


def _mark_crashed(run: UUID) -> None:
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Crashed(message="It was interrupted."), force=True)


def _run_all_steps(prepared: PreparedRun) -> None:
    """Run every step of a study, then set the run's ``outcome``."""
    checked = prepared.checked
    store = prepared.store
    progress = prepared.progress
    executor = prepared.executor
    spec = checked.inputs.study
    pipeline = checked.pipeline
    progress.log = get_run_logger().info
    report_failure = partial(progress.note, spec.name)
    with closing(progress.bar), Tracking(store, spec, pipeline, report_failure) as tracking:
        prepared.on_interrupt.extend([partial(tracking.end, "KILLED"), executor.abandon])
        run = StudyRun(store, executor, spec.execution, progress, tracking=tracking)
        workers = 1
        if checked.needs_workers:
            workers = executor.size
            if executor.shortage:
                progress.note(spec.name, executor.shortage)
        run_steps(pipeline.steps, run, missing=checked.missing, workers=workers)
        if run.failures:
            raise first_failure(run.failures)
        if not pipeline.steps[-1].is_complete(store):
            raise PapaError("the study did not finish: see its log in Prefect")
    prepared.outcome.set_result(tracking.link)
