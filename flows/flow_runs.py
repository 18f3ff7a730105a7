"""What Prefect's server holds of studies: their runs, named and tagged with their process and
mended where it was killed, and their reports.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from papa.processes import Process
from tasks.shown import page_link, run_links

FLOW = "papa-study"
TAG = "driver="
_FIGURE = re.compile(r"\((?P<name>\w+)\.svg\)")


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
    in_state = filters.TaskRunFilterState(type=filters.TaskRunFilterStateType(any_=unfinished))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(
            flow_filter=studies, flow_run_filter=flow_runs_in(*unfinished)
        ):
            drivers = [tag.removeprefix(TAG) for tag in run.tags if tag.startswith(TAG)]
            driver = Process.parse(drivers[0]) if drivers else None
            if driver is not None and driver.gone:
                client.set_flow_run_state(
                    run.id, Crashed(message=f"Its process {driver} was killed."), force=True
                )
        for task_run in client.read_task_runs(
            flow_filter=studies,
            flow_run_filter=flow_runs_in(StateType.CRASHED),
            task_run_filter=filters.TaskRunFilter(state=in_state),
        ):
            client.set_task_run_state(
                task_run.id, Crashed(message="Its study's process was killed."), force=True
            )


def publish_report(study: str, folder: Path, document: Mapping[str, Any]) -> None:
    """Keep a study's report as a Prefect artifact of the flow run, with its figures and links to
    the tracked runs.

    Where Prefect's server does not answer just then, the study is finished all the same.
    """
    import httpx
    from prefect import get_run_logger
    from prefect.artifacts import create_markdown_artifact

    def inline(figure: re.Match[str]) -> str:
        # A data URI: Prefect's UI shows no other address that every reader reaches.
        content = base64.b64encode((folder / f"{figure['name']}.png").read_bytes()).decode()
        return f"(data:image/png;base64,{content})"

    report = _FIGURE.sub(inline, (folder / "report.md").read_text())
    title, _, rest = report.partition("\n")
    page = page_link(document)
    where = (
        f"With interactive figures and every head: [report.html]({page})"
        if page
        else f"In full: `{folder}/report.html`"
    )
    runs = " · ".join(f"[{name}]({address})" for name, address in run_links(document).items())
    report = "\n\n".join(filter(None, [title, where, runs and f"Runs in MLflow: {runs}", rest]))
    # A key of Prefect's has lower-case letters, digits and dashes.
    key = re.sub("[^a-z0-9]+", "-", f"papa {study} report".lower())
    try:
        create_markdown_artifact(report, key=key, description=f"Study {study}, kept in {folder}")
    except (httpx.HTTPError, RuntimeError) as error:
        get_run_logger().warning("Prefect's server took no report: %s", error)
