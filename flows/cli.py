"""The command line ``papa``. Engines are imported only where a command needs them."""

from __future__ import annotations

import os
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

DEFAULT_STORE = Path("papa-store")

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
StoreFolder = Annotated[Path, typer.Option("--store", metavar="DIR", help="Where everything is kept.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Workers; as many as CPU cores or GPUs without it.", show_default=False),
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
    store: StoreFolder = DEFAULT_STORE,
    workers: Workers = None,
    verbose: Verbose = False,
) -> None:
    """Run a study; what is cached is not computed again."""
    with _one_sentence(verbose):
        spec = _load(study, overrides)
        from flows.inputs import check_inputs
        from tasks.store import Store

        place = Store(store)
        place.make()
        inputs = check_inputs(spec)
        from flows.environment import prepare_environment
        from flows.launch import launch

        prepare_environment(place, verbose=verbose)
        launch(spec, inputs, place, study=study, overrides=overrides or [], workers=workers)


@app.command()
def plan(
    study: Study, overrides: Overrides = None, store: StoreFolder = DEFAULT_STORE, workers: Workers = None
) -> None:
    """Show what would run, what is cached and about what it costs; compute nothing."""
    with _one_sentence(verbose=False):
        spec = _load(study, overrides)
        from rich.console import Console

        from flows.build import build_graph
        from flows.costs import measured_rates
        from flows.inputs import check_inputs
        from flows.plan import plan_study, plan_table, total_seconds
        from flows.progress import duration
        from tasks.store import Store
        from tasks.tracking import tracking_address

        place = Store(store)
        steps = plan_study(build_graph(spec, check_inputs(spec), tracking_address(place)), place)
        console = Console()
        console.print(plan_table(steps, measured=bool(measured_rates(place))))
        missing = sum(step.state == "to run" for step in steps)
        count = workers or spec.execution.workers or os.cpu_count() or 1
        console.print(
            f"{len(steps) - missing} of {len(steps)} steps are cached; "
            + (
                f"{missing} would run, about {duration(total_seconds(steps, count))} on {count} "
                f"worker{'s' if count > 1 else ''}."
                if missing
                else "nothing would run."
            ),
            highlight=False,
        )


@app.command()
def export(
    study: Study,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new or empty folder.", show_default=False)],
    fraction: Annotated[float, typer.Option(help="Share of heads that keep their own attention.", show_default=False)],
    encoder: Annotated[str | None, typer.Option(help="The study's only one without it.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option(help="The study's only one without it.", show_default=False)] = None,
    constants: Annotated[str, typer.Option(help="Kind of constant matrices.")] = "average",
    order: Annotated[str, typer.Option(help="Head order.")] = "lambda",
    overrides: Overrides = None,
    store: StoreFolder = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Write an encoder with constant heads, from a finished study, as a folder that loads without it."""
    with _one_sentence(verbose):
        spec = _load(study, overrides)
        from rich.console import Console

        from flows.export import Wanted, export_point
        from tasks.store import Store

        export_point(spec, Store(store), Wanted(encoder, task, constants, order, fraction), to, Console())


@app.command()
def models() -> None:
    """List the supported encoder architectures."""
    with _one_sentence(verbose=False):
        from flows.listings import models_table

        _print(models_table())


@app.command()
def tasks() -> None:
    """List the tasks that a study can name."""
    with _one_sentence(verbose=False):
        from flows.listings import tasks_table

        _print(tasks_table())


def _load(study: Path, overrides: list[str] | None) -> StudySpec:
    from papa.study_file import load_study

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
