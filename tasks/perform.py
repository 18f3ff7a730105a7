"""The one Prefect task through which every step runs, cached under the step's own key.

Prefect keeps a JSON record of each finished step; the artifact store is the truth. Where the record is there
and the artifact is gone, the step runs again; where only the record is gone, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import task
from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext
from prefect.futures import PrefectFuture
from prefect.states import State
from prefect.utilities.annotations import quote

from papa.errors import PapaError, TransientError
from tasks.locks import claimed
from tasks.step import Session, Step

_RETRY_SECONDS = [5.0, 30.0]
"""How long each repetition of a failed step waits."""


def _cache_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    step: Step = parameters["step"]
    return f"{step.stage}-{step.key}"


@task(
    cache_key_fn=_cache_key,
    persist_result=True,
    result_serializer="json",
    task_run_name="{step.name}",
    retries=len(_RETRY_SECONDS),
    retry_delay_seconds=_RETRY_SECONDS,
)
def perform(step: Step, session: Session) -> dict[str, str]:
    """Run a step unless its artifact is complete; returns the artifact's stage, key and digest."""
    what = f"{step.stage}-{step.key}"
    with claimed(session.store, what, lambda: session.reporter.waits(step.name), lambda: session.pool.closed):
        # Asked under the lock, as another run may have finished the step since ``submit`` asked.
        if not step.is_complete(session.store):
            if damage := step.clear(session.store):
                session.reporter.damaged(step.name, damage.what)
            with session.reporter.running(step.name, step.flops) as progress:
                step.run(session, progress)
    reference = session.store.reference(step.stage, step.key)
    return {"stage": step.stage, "key": step.key, "digest": reference.digest}


def submit(step: Step, session: Session, after: Sequence[State[Any]]) -> PrefectFuture[dict[str, str]]:
    """Submit a step as a task run of its stage.

    It gets no tags: Prefect asks its server for each tagged task run whether it may start, and a server that is
    being restarted would fail the run.

    Args:
        step: what to run.
        session: where.
        after: the states of the finished task runs it builds on, for Prefect's graph.
    """

    def retry(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
        if not worth_retrying(state.data):
            return False
        session.reporter.again(step.name, reason(state.data))
        return True

    task_of_stage = perform.with_options(
        name=step.stage,
        # Prefect's record of a finished step outlives its artifact.
        refresh_cache=not step.is_complete(session.store),
        retry_condition_fn=retry,
    )
    # Quoted: Prefect would look for futures in every cell that a step names, twice.
    return task_of_stage.submit(quote(step), quote(session), wait_for=after, return_state=False)


def worth_retrying(error: Any) -> bool:
    """Whether a failed step may succeed as it is: not where its message says what the user has to mend."""
    return isinstance(error, TransientError) or not isinstance(error, PapaError)


def reason(error: Any) -> str:
    """Why a step failed, in one sentence."""
    if isinstance(error, PapaError):
        return str(error)
    text = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {text[-1] if text else 'no message'}"
    return f"{what} (papa run --verbose, or the run's log in Prefect, tells more)"
