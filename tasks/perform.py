"""The one Prefect task through which every step runs, cached under the step's own key.

Prefect keeps a JSON record of each finished step; the artifact store is the truth. Where the record is there
and the artifact is gone, the step runs again; where only the record is gone, nothing is computed.
"""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.context import TaskRunContext
from prefect.futures import PrefectFuture

from tasks.session import Session
from tasks.step import Step


def _cache_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    step: Step = parameters["step"]
    return f"{step.stage}-{step.key}"


@task(
    cache_key_fn=_cache_key,
    persist_result=True,
    result_serializer="json",
    task_run_name="{step.name}",
)
def perform(step: Step, session: Session) -> dict[str, str]:
    """Run a step unless its artifact is there; say under which stage, key and digest the artifact lies."""
    if not step.is_complete(session.store):
        with session.reporter.running(step.name, step.flops) as progress:
            step.run(session, progress)
    reference = session.store.reference(step.stage, step.key)
    return {"stage": step.stage, "key": step.key, "digest": reference.digest}


def submit(step: Step, session: Session, after: list[PrefectFuture[Any]]) -> PrefectFuture[dict[str, str]]:
    """Submit a step as a task run of its stage.

    Args:
        step: what to run.
        session: where.
        after: the finished futures it builds on, for Prefect's graph.
    """
    task_of_stage = perform.with_options(
        name=step.stage,
        refresh_cache=not step.is_complete(session.store),
    )
    return task_of_stage.submit(step, session, wait_for=after)
