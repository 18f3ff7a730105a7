"""``papa deploy``: have a Prefect server run a study on a schedule."""

import os
import re
from contextlib import ExitStack
from datetime import timedelta
from typing import Annotated

import typer

from papa.errors import SpecError, shown
from papa.flows.check import cluster_address
from papa.flows.cli import options
from papa.flows.cli.options import option
from papa.flows.environment import outside_working_folder, prepare_engines
from papa.spec.orders import module_of, scores_in
from papa.storage.store import Store
from papa.tasks.stored import load_to_run


def deploy(
    study: options.Study,
    cron: Annotated[
        str | None, option(metavar="'M H D M W'", help="Cron schedule (default: no schedule).")
    ] = None,
    interval: Annotated[
        str | None,
        option(
            metavar="DURATION", help="Time between runs, such as 30m, 6h or 7d (instead of --cron)."
        ),
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
    with options.one_sentence(verbose), ExitStack() as stack:
        if cron and interval:
            raise SpecError("give --cron or --interval, not both")
        period = duration_of(interval) if interval else None
        cluster_address(ray_address)  # Refused if it holds a password.
        spec = load_to_run(study, overrides or ())
        names = [*map(scores_in, spec.orders)]
        for task in spec.tasks:
            names += [task.metric, task.custom_probe]
        for name in names:
            if name and module_of(name):
                raise SpecError(
                    f"{study} names the custom code {name}, which a deployment cannot run: use "
                    "'papa run'"
                )
        study_path = os.path.abspath(study)
        opened = Store(store)
        stack.enter_context(outside_working_folder())
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
        page = create_deployment(
            spec.name, parameters, pool, cron=cron, timezone=timezone, period=period
        )
        typer.echo(f"deployed papa-study/{spec.name}  {page}")
        # In the home folder: Prefect takes settings from that in which it is started.
        typer.echo(f"worker   (cd && prefect worker start --type process --pool {pool})")
        typer.echo(f"now      (cd && prefect deployment run papa-study/{spec.name})")


_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def duration_of(text: str) -> timedelta:
    """Return the duration that --interval names, such as "30m", "6h" or "7d"."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if match is None:
        raise SpecError(
            f"--interval: {shown(text)} is not a duration: give one such as 30m, 6h or 7d"
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
