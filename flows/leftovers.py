"""What a killed study leaves behind, cleaned up by the next: its run in state Running."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from flows.processes import Process

FLOW = "papa-study"
TAG = "driver="


def name_driver(run: UUID, tags: Iterable[str]) -> None:
    """Tag a flow run with the process that runs it.

    Done from inside the flow: tags given around it would go to its task runs, too, and cost each a request.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.update_flow_run(run, tags=[*tags, f"{TAG}{Process.this()}"])


def mark_crashed_runs() -> int:
    """Set runs of studies whose process died on this machine to Crashed, with their task runs; returns how many.

    Task runs of a study that something else set to Crashed, such as an automation that missed its heartbeat, are
    set to Crashed as well.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowFilter,
        FlowFilterName,
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        TaskRunFilter,
        TaskRunFilterState,
        TaskRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    def flow_runs_in(*states: StateType) -> FlowRunFilter:
        return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states))))

    studies = FlowFilter(name=FlowFilterName(any_=[FLOW]))
    unfinished = [StateType.RUNNING, StateType.PENDING]
    marked = 0
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_filter=studies, flow_run_filter=flow_runs_in(*unfinished)):
            driver = next((Process.parse(tag.removeprefix(TAG)) for tag in run.tags if tag.startswith(TAG)), None)
            if driver is not None and driver.gone:
                client.set_flow_run_state(run.id, Crashed(message=f"Its process {driver} was killed."), force=True)
                marked += 1
        left = client.read_task_runs(
            flow_filter=studies,
            flow_run_filter=flow_runs_in(StateType.CRASHED),
            task_run_filter=TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=unfinished))),
        )
        for task_run in left:
            client.set_task_run_state(task_run.id, Crashed(message="Its study's process was killed."), force=True)
    return marked
