"""What Prefect's server is asked and told: whether it can be used, the runs of studies, and their
reports.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from uuid import UUID

import httpx
from prefect import get_run_logger, settings
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run
from prefect.settings.context import temporary_settings
from prefect.states import Crashed

from papa.errors import PapaError, TransientError
from papa.reporting.tables import summary_markdown
from papa.scores.summary import read_table
from papa.spec import StudySpec
from tasks.mlflow import without_password

FLOW = "papa-study"
"""The flow whose runs are studies."""
_REQUEST_SECONDS = 15.0


def check_server() -> None:
    """Make sure that the Prefect server answers, takes the credentials and is of a version that
    fits.
    """
    address = without_password(settings.PREFECT_API_URL.value() or "its own address")
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
    """Name this flow run after its study, and tag it with its encoders and tasks.

    Done from inside the flow: tags given around it would go to its task runs, too, and cost each a
    request.
    """
    encoders, tasks = ([one.name for one in named] for named in (study.encoders, study.tasks))
    with get_client(sync_client=True) as client:
        tags = [*flow_run.tags, study.name, *encoders, *tasks]
        client.update_flow_run(UUID(flow_run.id), name=study.name, tags=tags)


def mark_interrupted(run: str) -> None:
    """Set a flow run to Crashed."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(run), Crashed(message="It was interrupted."), force=True)


def publish_report(folder: Path, link: str) -> None:
    """Keep a study's report as a Prefect artifact of the flow run, with its scores drawn and a
    ``link`` to MLflow, or none.

    Where Prefect's server does not answer just then, the study is finished all the same.
    """
    # A data URI: Prefect's UI shows no other address that every reader reaches.
    content = base64.b64encode((folder / "scores.png").read_bytes()).decode()
    rest = f"{summary_markdown(read_table(folder / 'summary.csv'))}\n"
    rest += f"![Scores](data:image/png;base64,{content})\n"
    where = f"In full: `{folder}/report.html`" + (f" · [MLflow]({link})" if link else "")
    # A key of Prefect's has lower-case letters, digits and dashes.
    key = re.sub("[^a-z0-9]+", "-", f"papa {folder.name} report".lower())
    try:
        create_markdown_artifact(f"# {folder.name}\n\n{where}\n\n{rest}", key=key)
    except (httpx.HTTPError, RuntimeError) as error:
        get_run_logger().warning("Prefect's server took no report: %s", error)
