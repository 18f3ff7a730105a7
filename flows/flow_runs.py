"""The flow runs of studies: named and tagged with their process, and mended where it was killed."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from papa.processes import Process

FLOW = "papa-study"
TAG = "driver="


def describe_run(run: UUID, name: str, tags: Iterable[str]) -> None:
    """Name a flow run, and tag it with the process that runs it.

    Done from inside the flow: tags given around it would go to its task runs, too, and cost each a
    request.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.update_flow_run(run, name=name, tags=[*tags, f"{TAG}{Process.this()}"])


def mark_interrupted_run() -> None:
    """Set this process's flow run to Crashed; its task runs follow when the next study starts."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
    from prefect.states import Crashed

    own = FlowRunFilter(tags=FlowRunFilterTags(all_=[f"{TAG}{Process.this()}"]))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=own):
            client.set_flow_run_state(run.id, Crashed(message="It was interrupted."), force=True)


def mark_crashed_runs() -> None:
    """Set runs of studies whose process died on this machine to Crashed, with their task runs.

    Task runs of a study that something else set to Crashed, such as an automation that missed its
    heartbeat, are set to Crashed as well.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    def flow_runs_in(*states: StateType) -> filters.FlowRunFilter:
        state_type = filters.FlowRunFilterStateType(any_=list(states))
        return filters.FlowRunFilter(state=filters.FlowRunFilterState(type=state_type))

    studies = filters.FlowFilter(name=filters.FlowFilterName(any_=[FLOW]))
    unfinished = [StateType.RUNNING, StateType.PENDING]
    state_type = filters.TaskRunFilterStateType(any_=unfinished)
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(
            flow_filter=studies, flow_run_filter=flow_runs_in(*unfinished)
        ):
            driver = next(
                (Process.parse(tag.removeprefix(TAG)) for tag in run.tags if tag.startswith(TAG)),
                None,
            )
            if driver is not None and driver.gone:
                client.set_flow_run_state(
                    run.id, Crashed(message=f"Its process {driver} was killed."), force=True
                )
        left = client.read_task_runs(
            flow_filter=studies,
            flow_run_filter=flow_runs_in(StateType.CRASHED),
            task_run_filter=filters.TaskRunFilter(
                state=filters.TaskRunFilterState(type=state_type)
            ),
        )
        for task_run in left:
            client.set_task_run_state(
                task_run.id, Crashed(message="Its study's process was killed."), force=True
            )
