"""The command line ``papa``. Engines are imported only where a command needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows import stored_commands
from flows.compare import compare
from flows.describe import describe
from flows.environment import settle_environment
from flows.heads import heads
from flows.options import (
    DEFAULT_STORE,
    Code,
    Overrides,
    RayAddress,
    StoreAddress,
    Study,
    Verbose,
    Workers,
    argument,
    load,
    one_sentence,
    open_store,
    option,
)
from flows.terminal import settle_streams

ALONE, REPEATED = "Without a file:", "may be repeated"
app = typer.Typer(
    name="papa",
    help="How much does a pretrained encoder use the input dependence of its attention?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def main(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True)
    ] = False,
) -> None:
    settle_streams()
    settle_environment()
    if show_version:
        from importlib.metadata import version

        typer.echo(f"papa {version('papa-attention')}")
        raise typer.Exit


@app.command()
def run(
    study: Annotated[Path | None, argument(metavar="[STUDY.yaml]", help="The study.")] = None,
    encoders: Annotated[
        list[str] | None,
        option("--encoder", "--model", metavar="NAME", help=f"{ALONE} an encoder; {REPEATED}."),
    ] = None,
    tasks: Annotated[
        list[str] | None, option("--task", metavar="NAME", help=f"{ALONE} a task; {REPEATED}.")
    ] = None,
    limit: Annotated[
        int | None,
        option("--limit", min=1, metavar="ROWS", help=f"{ALONE} rows of each split at most."),
    ] = None,
    own: Annotated[
        Path | None,
        option(
            "--own",
            metavar="TEXTS",
            help=f"{ALONE} what the model's own head keeps on these texts.",
        ),
    ] = None,
    overrides: Overrides = None,
    code: Code = None,
    store: StoreAddress = DEFAULT_STORE,
    workers: Workers = None,
    ray_address: RayAddress = None,
    verbose: Verbose = False,
) -> None:
    """Run a study; what is cached is not computed again.

    A study is a file, or some encoders on some tasks: papa run --encoder
    google-bert/bert-base-uncased --task cola

    Or a model as it is used, on a file of texts: papa run --model embedded/all-MiniLM-L6-v2 --own
    texts.txt
    """
    with one_sentence(verbose) as interruption:
        interruption.kept = lambda: f"finished steps are kept in {store}"
        if own is not None:
            from flows.without_file import own_study
            from papa.study.store import Store

            others = study is not None or bool(tasks)
            spec = own_study(encoders or [], own, others, limit, overrides or [], Store(store))
        elif study is not None and not (encoders or tasks or limit):
            spec = load(study, overrides)
        else:
            from flows.without_file import study_without_file

            spec = study_without_file(study, encoders or [], tasks or [], limit, overrides or [])
        from flows.run import run_study
        from papa.study.store import Store

        run_study(
            spec,
            Store(store),
            interruption,
            study=study,
            overrides=overrides or [],
            code=code or [],
            workers=workers,
            ray_address=ray_address,
            verbose=verbose,
        )


@app.command()
def check(
    study: Study,
    overrides: Overrides = None,
    code: Code = None,
    store: StoreAddress = DEFAULT_STORE,
    workers: Workers = None,
    ray_address: RayAddress = None,
) -> None:
    """Look at everything that a study names, and tell all that is wrong with it;
    compute nothing.
    """
    with one_sentence():
        from flows.check import check_study
        from flows.show import show_checked
        from papa.spec.file import load_study

        checked = check_study(
            load_study(study, overrides or ()),
            open_store(store),
            workers=workers,
            ray_address=ray_address,
            fetch_weights=False,
            code=code or (),
        )
        show_checked(checked, Console())


@app.command()
def plan(
    study: Study,
    overrides: Overrides = None,
    code: Code = None,
    store: StoreAddress = DEFAULT_STORE,
    workers: Workers = None,
) -> None:
    """Show what would run, what is cached and how long such steps took here; compute nothing."""
    with one_sentence():
        spec = load(study, overrides)
        from flows.check import check_study
        from flows.plan import show_plan

        opened = open_store(store)
        checked = check_study(spec, opened, workers=workers, for_plan=True, code=code or ())
        show_plan(checked, opened, Console())


@app.command()
def init(
    to: Annotated[Path, typer.Argument(metavar="[FILE]", help="A new file.")] = Path("study.yaml"),
) -> None:
    """Write a study that explains itself, to start from."""
    with one_sentence():
        from flows.init import write_example

        write_example(to)
        typer.echo(f"Written to {to}; edit it, then: papa check {to}")


@app.command()
def ui(store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """Serve Prefect's pages, and MLflow's of a store, until Ctrl-C."""
    with one_sentence(verbose):
        from flows.environment import prepare_engines
        from papa.study.store import Store

        local = Store(store)
        prepare_engines(local.root, verbose=verbose)
        local.make()
        from flows.ui import show_pages

        show_pages(local, Console(), verbose=verbose)


@app.command()
def models() -> None:
    """List the encoders that a study can have, and the models whose heads can be replaced
    in place.
    """
    with one_sentence():
        from flows.show import show_models

        show_models(Console())


@app.command()
def tasks() -> None:
    """List the tasks that a study can name."""
    with one_sentence():
        from flows.show import show_tasks

        show_tasks(Console())


app.command()(heads)
app.command()(stored_commands.export)
app.command()(stored_commands.report)
app.command("list")(stored_commands.list_studies)
app.command()(compare)
app.command()(stored_commands.prune)
app.command()(describe)
