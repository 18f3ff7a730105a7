"""What Prefect's server is asked and told: whether it can be used, the runs of studies, named and
tagged with their process and mended where it was killed, and their reports.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import get_run_logger, settings
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter, TaskRunFilter
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run
from prefect.settings.context import temporary_settings
from prefect.states import Crashed, State

from flows.server import FLOW
from papa.errors import PapaError, TransientError
from papa.processes import Process
from papa.reporting.tables import summary_markdown
from papa.scores.summary import read_table
from papa.spec import StudySpec
from tasks.mlflow import without_password
from tasks.shown import page_link, run_links

TAG = "driver="
_REQUEST_SECONDS = 15.0
_STUDIES = FlowFilter.model_validate({"name": {"any_": [FLOW]}})


def check_server() -> None:
    """Make sure that the Prefect server answers, takes the credentials and is of a version that
    fits.
    """
    address = without_password(settings.PREFECT_API_URL.value())
    impatient = {
        settings.PREFECT_API_REQUEST_TIMEOUT: _REQUEST_SECONDS,
        settings.PREFECT_CLIENT_MAX_RETRIES: 0,
    }
    try:
        with temporary_settings(impatient), get_client(sync_client=True) as client:
            client.raise_for_api_version_mismatch()
    except PrefectHTTPStatusError as error:
        raise PapaError(
            f"Prefect at {address} refuses the credentials (status {error.response.status_code}): "
            "set PREFECT_API_AUTH_STRING to its user:password"
        ) from None
    except RuntimeError as error:
        unfit = f"cannot be used ({str(error).rstrip('.')})"
        what = "does not answer" if error.__cause__ else unfit
        raise TransientError(
            f"Prefect at {address} {what}: start a server there, or unset PREFECT_API_URL and papa "
            "starts its own"
        ) from None


def begin_run(study: StudySpec) -> None:
    """Name this flow run after its study, and tag it with its encoders and tasks and the process
    that runs it; set runs whose process died to Crashed.

    Done from inside the flow: tags given around it would go to its task runs, too, and cost each a
    request.
    """
    encoders, tasks = (
        (encoder.name for encoder in study.encoders),
        (task.name for task in study.tasks),
    )
    tags = [*flow_run.tags, study.name, *encoders, *tasks, f"{TAG}{Process.this()}"]
    with get_client(sync_client=True) as client:
        _mark_crashed_runs(client)
        client.update_flow_run(UUID(flow_run.id), name=study.name, tags=tags)


def mark_interrupted_run() -> None:
    """Set this process's flow run to Crashed; its task runs follow when the next study starts."""
    own = FlowRunFilter.model_validate({"tags": {"all_": [f"{TAG}{Process.this()}"]}})
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=own):
            client.set_flow_run_state(run.id, Crashed(message="It was interrupted."), force=True)


def _mark_crashed_runs(client: SyncPrefectClient) -> None:
    """Set runs of studies whose process died on this machine to Crashed, with their task runs.

    Task runs of a study that something else set to Crashed, such as an automation that missed its
    heartbeat, are set to Crashed as well.
    """
    unfinished = {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}
    crashed = {"state": {"type": {"any_": ["CRASHED"]}}}
    for run in client.read_flow_runs(
        flow_filter=_STUDIES, flow_run_filter=FlowRunFilter.model_validate(unfinished)
    ):
        drivers = [tag.removeprefix(TAG) for tag in run.tags if tag.startswith(TAG)]
        driver = Process.parse(drivers[0]) if drivers else None
        if driver is not None and driver.gone:
            killed: State[None] = Crashed(message=f"Its process {driver} was killed.")
            client.set_flow_run_state(run.id, killed, force=True)
    for task_run in client.read_task_runs(
        flow_filter=_STUDIES,
        flow_run_filter=FlowRunFilter.model_validate(crashed),
        task_run_filter=TaskRunFilter.model_validate(unfinished),
    ):
        lost: State[None] = Crashed(message="Its study's process was killed.")
        client.set_task_run_state(task_run.id, lost, force=True)


def publish_report(folder: Path, document: Mapping[str, Any]) -> None:
    """Keep a study's report as a Prefect artifact of the flow run, with its scores drawn and links
    to the tracked runs.

    Where Prefect's server does not answer just then, the study is finished all the same.
    """

    # A data URI: Prefect's UI shows no other address that every reader reaches.
    content = base64.b64encode((folder / "scores.png").read_bytes()).decode()
    summary = read_table(folder / "summary.csv")
    title = f"# {folder.name}"
    rest = f"{summary_markdown(summary)}\n![Scores](data:image/png;base64,{content})\n"
    page = page_link(document)
    where = (
        f"With interactive figures and every head: [report.html]({page})"
        if page
        else f"In full: `{folder}/report.html`"
    )
    runs = " · ".join(f"[{name}]({address})" for name, address in run_links(document).items())
    report = "\n\n".join(filter(None, [title, where, runs and f"Runs in MLflow: {runs}", rest]))
    # A key of Prefect's has lower-case letters, digits and dashes.
    key = re.sub("[^a-z0-9]+", "-", f"papa {folder.name} report".lower())
    try:
        create_markdown_artifact(
            report, key=key, description=f"Study {folder.name}, kept in {folder}"
        )
    except (httpx.HTTPError, RuntimeError) as error:
        get_run_logger().warning("Prefect's server took no report: %s", error)
