"""``papa deploy``: have a Prefect server run a study on a schedule."""

import os
from typing import Annotated

import typer

from papa.flows.check import cluster_address
from papa.flows.cli import options
from papa.flows.cli.options import option
from papa.flows.environment import outside_working_folder, prepare_engines
from papa.storage.store import Store
from papa.tasks.code import with_code
from papa.tasks.stored import load_to_run


def deploy(
    study: options.Study,
    cron: Annotated[
        str | None, option(metavar="'M H D M W'", help="Cron schedule (default: no schedule).")
    ] = None,
    timezone: Annotated[str, typer.Option(metavar="NAME", help="Time zone of --cron.")] = "UTC",
    pool: Annotated[str, typer.Option(metavar="NAME", help="Prefect work pool.")] = "papa",
    overrides: options.Overrides = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    workers: options.Workers = None,
    ray_address: options.RayAddress = None,
    verbose: options.Verbose = False,
) -> None:
    """Deploy a study to the Prefect server of PREFECT_API_URL or of the active profile.

    The deployment stores the absolute paths of the study file and of the store, which the worker
    must be able to read, and a digest of the study: a run of a changed file is refused.
    """
    with options.one_sentence(verbose):
        cluster_address(ray_address)  # Refused if it holds a password.
        spec = load_to_run(study, overrides or ())
        # Refused if it names custom code, whose files no scheduled run is given.
        with_code(spec.model_copy(update={"code": ()}), {})
        study_path = os.path.abspath(study)
        opened = Store(store)
        with outside_working_folder():
            prepare_engines(opened.root, verbose=verbose)
            # Prefect reads its settings when it is imported.
            from papa.flows.deployments import create_deployment
            from papa.flows.study import digest_of

            parameters = {
                "study": study_path,
                "overrides": overrides or [],
                "store": opened.address,
                "name": spec.name,
                "digest": digest_of(spec),
                "workers": workers,
                "ray_address": ray_address,
            }
            page = create_deployment(spec.name, parameters, pool, cron=cron, timezone=timezone)
        typer.echo(f"deployed papa-study/{spec.name}  {page}")
        # cd to home first: Prefect reads settings from its working folder.
        typer.echo(f"worker   (cd && prefect worker start --type process --pool {pool})")
        typer.echo(f"now      (cd && prefect deployment run papa-study/{spec.name})")
