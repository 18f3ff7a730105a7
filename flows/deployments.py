"""A study as a Prefect deployment.

Prefect reads its settings when it is imported: ``prepare_engines`` comes before this module.
"""

from collections.abc import Mapping
from typing import Any

from httpx import HTTPError
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import DeploymentApplyError, EntrypointType, RunnerDeployment
from prefect.exceptions import PrefectException
from prefect.schedules import Cron
from prefect.settings import PREFECT_API_URL

from papa.credentials import without_credentials
from papa.errors import PapaError, SpecError, in_one_line
from papa.flows.dead_runs import HEARTBEAT_SECONDS, create_automation
from papa.flows.study import run_study


def create_deployment(
    name: str, parameters: Mapping[str, Any], pool: str, *, cron: str | None, timezone: str
) -> str:
    """Create or replace a deployment of ``run_study``, and the automation for dead runs; return the
    address of its page. It runs by ``cron`` in a time zone, or on request alone.

    Raises:
        PapaError: No server is set, or it refuses the deployment.
        SpecError: ``cron`` or ``timezone`` is not valid.
    """
    server = PREFECT_API_URL.value()
    if not server:
        raise PapaError(
            "no Prefect server is set: set PREFECT_API_URL, or select a Prefect "
            "profile that has one"
        )
    try:
        schedule = Cron(cron, timezone=timezone) if cron else None
        deployment_id = RunnerDeployment.from_flow(
            run_study,
            name,
            schedule=schedule,
            parameters=dict(parameters),
            tags=["papa"],
            work_pool_name=pool,
            entrypoint_type=EntrypointType.MODULE_PATH,
            # Without a working_dir a run has an empty folder.
            job_variables={"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS)}},
            concurrency_limit=ConcurrencyLimitConfig(
                limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE
            ),
        ).apply()
        create_automation()
    except (DeploymentApplyError, PrefectException, HTTPError, RuntimeError) as error:
        raise PapaError(
            f"the Prefect server {without_credentials(server)} refused the deployment "
            f"({in_one_line(error)}): check that it runs, that PREFECT_API_AUTH_STRING is "
            f"its login, and that the pool exists (prefect work-pool create {pool} --type "
            "process)"
        ) from None
    except ValueError as error:
        raise SpecError(f"--cron, --timezone: {in_one_line(error)}") from None
    page = f"{server.rstrip('/').removesuffix('/api')}/deployments/deployment/{deployment_id}"
    return without_credentials(page)
