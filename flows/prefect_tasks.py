"""What the tasks of a study share: a step is run once, and its artifact is the cache. Prefect keeps
no results: its record could name another step's artifact, or a pickle, which it would run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import task_run
from prefect.states import Completed, State

from papa.errors import PapaError, TransientError, in_short
from papa.tasks.run import Session, make
from papa.tasks.step import Step
from papa.tasks.mlflow import Tracking

_RETRY_SECONDS = [5.0, 30.0]
"""How long each repetition of a failed step waits."""


@dataclass(eq=False)
class StudyRun:
    """What the tasks of a run share; ``failures`` says why, by the step."""

    session: Session
    tracking: Tracking
    failures: dict[str, str] = field(default_factory=dict)

    def compute(self, step: Step) -> bool:
        """Compute a step unless its artifact is complete; whether there was something to do."""
        return make(step, self.session)


def stage(function: Callable[[Step, StudyRun], bool]) -> Task[..., State[Any]]:
    """A function as the Prefect task of a stage, without tags: Prefect asks its server for each
    tagged task run whether it may start.
    """

    def once(step: Step, run: StudyRun) -> State[Any]:
        try:
            made = function(step, run)
            for own in step.members or (step,):
                run.tracking.step(own)
        except Exception as error:
            why = str(error)
            if not isinstance(error, PapaError):
                why = f"{in_short(error)} (papa run --verbose tells more)"
            again = worth_retrying(error) and task_run.run_count <= len(_RETRY_SECONDS)
            how = "will be tried again" if again else "failed"
            run.session.reporter.told(step.name, f"{how}: {why}")
            run.failures |= {} if again else {step.name: why}
            raise
        run.session.reporter.finished(step.name, made, len(step.members))
        return Completed() if made else Completed(name="Cached")

    return task(
        name=function.__name__,
        description=function.__doc__,
        task_run_name="{step.name}",
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(_RETRY_SECONDS),
        retry_delay_seconds=_RETRY_SECONDS,
        retry_condition_fn=lambda _task, _run, state: worth_retrying(state.data),
    )(once)


def worth_retrying(error: Any) -> bool:
    """Whether a failed step may succeed as it is, and no user has to mend anything."""
    return isinstance(error, TransientError) or not isinstance(error, PapaError)
