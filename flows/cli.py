"""The command line ``papa``. Engines are imported only where a command needs them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from papa.errors import PapaError

if TYPE_CHECKING:
    from papa.spec import StudySpec

DEFAULT_STORE = "papa-store"

app = typer.Typer(
    name="papa",
    help="How much does a pretrained encoder use the input dependence of its attention?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Study = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="a.b=c", help="Override a value of the study; may be repeated.", show_default=False),
]
StoreAddress = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DIR|URI",
        envvar="PAPA_STORE",
        help="Where artifacts are kept: a folder, or s3://bucket/prefix.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Workers; as many as CPU cores or GPUs without it.", show_default=False),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="A Ray cluster: host:port on one of its nodes, or ray://host:10001.",
        show_default=False,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show what the engines log, and tracebacks.")]


@app.callback(invoke_without_command=True)
def main(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if show_version:
        typer.echo(f"papa {version('papa-attention')}")
        raise typer.Exit


@app.command()
def run(
    study: Study,
    overrides: Overrides = None,
    store: StoreAddress = DEFAULT_STORE,
    workers: Workers = None,
    ray_address: RayAddress = None,
    verbose: Verbose = False,
) -> None:
    """Run a study; what is cached is not computed again."""
    with _one_sentence(verbose):
        spec = _load(study, overrides)
        from flows.check import check_study
        from flows.environment import prepare_environment
        from flows.server import use_server
        from tasks.store import Store

        place = Store(store)
        place.make()
        prepare_environment(place, verbose=verbose)
        # It comes up while the study is looked at.
        server = use_server(place)
        checked = check_study(spec, place, workers=workers, ray_address=ray_address)
        from flows.run import run_checked

        run_checked(
            checked, place, server, study=study, overrides=overrides or [], workers=workers, ray_address=ray_address
        )


@app.command()
def check(
    study: Study,
    overrides: Overrides = None,
    store: StoreAddress = DEFAULT_STORE,
    workers: Workers = None,
    ray_address: RayAddress = None,
) -> None:
    """Look at everything that a study names, and tell all that is wrong with it; compute nothing."""
    with _one_sentence(verbose=False):
        spec = _load(study, overrides)
        from rich.console import Console

        from flows.check import check_study
        from flows.show import show_checked
        from tasks.store import Store

        place = Store(store)
        place.check()
        checked = check_study(spec, place, workers=workers, ray_address=ray_address, fetch_weights=False)
        show_checked(checked, Console())


@app.command()
def plan(
    study: Study,
    overrides: Overrides = None,
    store: StoreAddress = DEFAULT_STORE,
    workers: Workers = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Plan for so many GPUs instead of this machine.", show_default=False)
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Plan for so many machines, each with these workers or GPUs.")] = 1,
    tflops: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="What one of them reaches; measured, or an A100's, without it.", show_default=False
        ),
    ] = None,
) -> None:
    """Show what would run, what is cached and about what it costs; compute nothing."""
    with _one_sentence(verbose=False):
        spec = _load(study, overrides)
        from rich.console import Console

        from flows.check import check_study
        from flows.plan import Cluster, show_plan
        from tasks.store import Store

        place = Store(store)
        place.check()
        checked = check_study(spec, place, for_plan=True, fetch_weights=False)
        show_plan(checked, place, Console(), Cluster(nodes, workers, gpus, tflops))


@app.command()
def export(
    study: Study,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new or empty folder.", show_default=False)],
    fraction: Annotated[float, typer.Option(help="Share of heads that stay input-dependent.", show_default=False)],
    encoder: Annotated[str | None, typer.Option(help="The study's only one without it.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option(help="The study's only one without it.", show_default=False)] = None,
    constants: Annotated[str, typer.Option(help="Kind of constant matrices.")] = "average",
    order: Annotated[str, typer.Option(help="Head order.")] = "lambda",
    overrides: Overrides = None,
    store: StoreAddress = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Write an encoder with constant heads, from a finished study, as a folder that loads without it."""
    with _one_sentence(verbose):
        spec = _load(study, overrides)
        from rich.console import Console

        from flows.export import ExportRequest, export_cell
        from tasks.store import Store

        place = Store(store)
        place.check()
        export_cell(spec, place, ExportRequest(encoder, task, constants, order, fraction), to, Console())


@app.command()
def compare(
    studies: Annotated[
        list[str], typer.Argument(metavar="STUDY...", help="Names of studies in MLflow.", show_default=False)
    ],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Write the table and a figure there.", show_default=False),
    ] = None,
    store: StoreAddress = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Show studies side by side, from what MLflow knows of them."""
    with _one_sentence(verbose):
        from rich.console import Console

        from flows.show import compare_studies
        from tasks.mlflow_client import tracking_address
        from tasks.store import Store

        compare_studies(studies, tracking_address(Store(store)), to, Console())


@app.command()
def prune(
    store: StoreAddress = DEFAULT_STORE,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it; without this it is shown only.")] = False,
    verbose: Verbose = False,
) -> None:
    """Show what nothing in a store refers to, with size and age; with --delete remove it."""
    with _one_sentence(verbose):
        from rich.console import Console

        from flows import prune as pruning
        from tasks.store import Store

        pruning.prune(Store(store), Console(), really=delete)


@app.command()
def ui(store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """Open Prefect's and MLflow's pages on a store, until Ctrl-C; runs on it use this server meanwhile."""
    with _one_sentence(verbose):
        from rich.console import Console

        from flows.environment import prepare_environment
        from flows.ui import show_pages
        from tasks.store import Store

        place = Store(store)
        place.make()
        prepare_environment(place, verbose=verbose)
        show_pages(place, Console())


@app.command()
def models() -> None:
    """List the supported encoder architectures."""
    with _one_sentence(verbose=False):
        from flows.show import models_table

        _print(models_table())


@app.command()
def tasks() -> None:
    """List the tasks that a study can name."""
    with _one_sentence(verbose=False):
        from flows.show import tasks_table

        _print(tasks_table())


def _load(study: Path, overrides: list[str] | None) -> StudySpec:
    from papa.spec.file import load_study

    return load_study(study, overrides or ())


def _print(table: object) -> None:
    from rich.console import Console

    Console().print(table)


@contextmanager
def _one_sentence(verbose: bool) -> Iterator[None]:
    """Errors that a user can mend become one sentence and exit code 1."""
    try:
        yield
    except PapaError as error:
        if verbose:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("error: interrupted: run the same command again to go on", err=True)
        sys.exit(130)
