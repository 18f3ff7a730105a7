"""The command line ``papa``: a file a command. Engines are imported only where one needs them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from papa.flows.cli.check import check
from papa.flows.cli.compare import compare
from papa.flows.cli.deploy import deploy
from papa.flows.cli.describe import describe
from papa.flows.cli.export import export
from papa.flows.cli.heads import heads
from papa.flows.cli.init import init
from papa.flows.cli.lists import list_studies, models, tasks
from papa.flows.cli.plan import plan
from papa.flows.cli.prune import prune
from papa.flows.cli.remove import remove
from papa.flows.cli.renamed import Command
from papa.flows.cli.report import report
from papa.flows.cli.run import run
from papa.flows.cli.ui import ui
from papa.flows.server import open_standard_streams, settle_environment

app = typer.Typer(
    name="papa",
    help="Measure how much a pretrained Transformer uses its attention, head by head.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def main(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True)
    ] = False,
) -> None:
    open_standard_streams()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        # What a terminal's encoding lacks is printed as "?".
        stream.reconfigure(errors="replace")
    settle_environment()
    if show_version:
        from importlib.metadata import version

        typer.echo(f"papa {version('papa-attention')}")
        raise typer.Exit


commands: list[Any] = [run, check, plan, deploy, init, ui, models, tasks]
commands += [heads, export, report, list_studies, compare, remove, prune, describe]
for command in commands:
    app.command(command.__name__.removesuffix("_studies"), cls=Command)(command)
