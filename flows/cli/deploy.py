"""``papa deploy``: have a Prefect server run a study on a schedule."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Annotated

import typer

from papa.credentials import without_credentials
from papa.errors import PapaError, SpecError, in_one_line
from papa.flows.cli import options
from papa.flows.cli.options import option


def deploy(
    study: options.Study,
    cron: Annotated[
        str | None,
        option(metavar="'M H D M W'", help="Cron schedule (default: runs start by hand)."),
    ] = None,
    timezone: Annotated[str, typer.Option(metavar="NAME", help="Time zone of --cron.")] = "UTC",
    pool: Annotated[str, typer.Option(metavar="NAME", help="Prefect's work pool.")] = "papa",
    overrides: options.Overrides = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    verbose: options.Verbose = False,
) -> None:
    """Make a study a deployment of the Prefect server that PREFECT_API_URL or a profile names.

    The deployment holds the absolute paths of the study's file and of the store, which its worker
    must see too, and the study's name and digest: a run of a file that was changed is refused.
    """
    with options.one_sentence(verbose), ExitStack() as held:
        from papa.flows.server import outside_working_folder, prepare_engines
        from papa.spec.orders import module_of, scores_in
        from papa.storage.store import Store
        from papa.tasks.stored import load_to_run

        spec = load_to_run(study, overrides or ())
        names = (
            *map(scores_in, spec.orders),
            *(one for task in spec.tasks for one in (task.metric, task.custom_probe)),
        )
        if own := next((one for one in names if one and module_of(one)), None):
            raise SpecError(f"{study} names {own}, and a deployment is given no code: use papa run")
        study_path = os.path.abspath(study)
        opened = Store(store)
        held.enter_context(outside_working_folder())
        prepare_engines(opened.root, verbose=verbose)
        from httpx import HTTPError
        from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
        from prefect.deployments.runner import (
            DeploymentApplyError,
            EntrypointType,
            RunnerDeployment,
        )
        from prefect.exceptions import PrefectException
        from prefect.schedules import Cron
        from prefect.settings import PREFECT_API_URL

        from papa.flows.study import digest_of, run_study

        if not (server := PREFECT_API_URL.value()):
            raise PapaError(
                "no Prefect server is named: set PREFECT_API_URL, or use a profile that does"
            )
        parameters = {
            "study": study_path,
            "overrides": overrides or [],
            "store": opened.address,
            "name": spec.name,
            "digest": digest_of(spec),
        }
        waits = ConcurrencyLimitStrategy.ENQUEUE
        try:
            made = RunnerDeployment.from_flow(
                run_study,
                spec.name,
                schedule=Cron(cron, timezone=timezone) if cron else None,
                parameters=parameters,
                tags=["papa"],
                work_pool_name=pool,
                entrypoint_type=EntrypointType.MODULE_PATH,
                # Without a working_dir a run has an empty folder. The variable is what
                # infra/prefect-automation.yaml listens for.
                job_variables={"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}},
                concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=waits),
            ).apply()
        except (DeploymentApplyError, PrefectException, HTTPError, RuntimeError) as error:
            raise PapaError(
                f"{without_credentials(server)} takes no deployment ({in_one_line(error)}): see "
                "that it runs, takes PREFECT_API_AUTH_STRING and has the pool (prefect work-pool "
                f"create {pool} --type process)"
            ) from None
        except ValueError as error:
            raise SpecError(f"--cron, --timezone: {in_one_line(error)}") from None
        page = f"{server.rstrip('/').removesuffix('/api')}/deployments/deployment/{made}"
        typer.echo(f"deployed papa-study/{spec.name}  {without_credentials(page)}")
        # In the home folder: Prefect takes settings from that in which it is started.
        typer.echo(f"worker   (cd && prefect worker start --type process --pool {pool})")
        typer.echo(f"now      (cd && prefect deployment run papa-study/{spec.name})")
