"""The one Prefect task through which every step runs.

The artifact store alone says what is finished. Prefect keeps no results and reads none: a record of
its own could name another step's artifact, or a pickle, which it would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.futures import PrefectFuture
from prefect.states import Completed, State
from prefect.utilities.annotations import quote

from papa.errors import PapaError, TransientError
from papa.study.here import make
from papa.study.step import Session, Step

_RETRY_SECONDS = [5.0, 30.0]
"""How long each repetition of a failed step waits."""
CACHED = "Cached"
"""The name of a finished step's state where there was nothing to do."""


@task(
    persist_result=False,
    cache_policy=NO_CACHE,
    task_run_name="{step.name}",
    retries=len(_RETRY_SECONDS),
    retry_delay_seconds=_RETRY_SECONDS,
)
def perform(step: Step, session: Session) -> State[Any]:
    """Run a step unless its artifact is complete; the state's name tells which."""
    return Completed() if make(step, session) else Completed(name=CACHED)


def submit(step: Step, session: Session, after: Sequence[PrefectFuture[Any]]) -> PrefectFuture[Any]:
    """Submit a step as a task run of its stage, after those it builds on, for Prefect's graph.

    It gets no tags: Prefect asks its server for each tagged task run whether it may start, and a
    server that is being restarted would fail the run.
    """

    def retry(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
        if not worth_retrying(state.data):
            return False
        session.reporter.told(step.name, f"will be tried again: {reason(state.data)}")
        return True

    task_of_stage = perform.with_options(name=step.stage, retry_condition_fn=retry)
    # Quoted: Prefect would look for futures in every cell that a step names, twice.
    return task_of_stage.submit(quote(step), quote(session), wait_for=after, return_state=False)


def worth_retrying(error: Any) -> bool:
    """Whether a failed step may succeed as it is, and no user has to mend anything."""
    return isinstance(error, TransientError) or not isinstance(error, PapaError)


def reason(error: Any) -> str:
    """Why a step failed, in one sentence."""
    if isinstance(error, PapaError):
        return str(error)
    text = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {text[-1] if text else 'no message'}"
    return f"{what} (papa run --verbose, or the run's log in Prefect, tells more)"
