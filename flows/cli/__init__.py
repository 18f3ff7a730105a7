"""The command line ``papa``: a file a command, imported when the command is called."""

import sys
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from papa.flows.environment import open_standard_streams, settle_environment
from papa.flows.interrupt import Interruption

COMMANDS = {
    "run": "Run a study; finished steps are cached.",
    "check": "List all problems of a study's encoders, data, columns and labels; compute nothing.",
    "plan": "Show which steps would run or are cached, and their estimated time; compute nothing.",
    "deploy": "Deploy a study to the Prefect server of PREFECT_API_URL or of the active profile.",
    "init": "Write a short study file with comments.",
    "ui": "Serve Prefect's and MLflow's pages until Ctrl-C.",
    "models": "List the architectures that studies support, and those that papa.ablated takes.",
    "tasks": "List the known tasks, which a study can name.",
    "heads": "Show how many and which heads may become constant within a drop of the score.",
    "export": "Export an encoder with constant heads to a folder that transformers loads.",
    "report": "Write a finished study's report again from its stored results.",
    "list": "List the studies of a store with their states and reports.",
    "compare": "Compare finished studies in one table.",
    "remove": "Delete a study, its results, and the artifacts that no other finished study needs.",
    "prune": "List the unused artifacts of a store with size and age; delete them with --delete.",
    "describe": "Describe what heads do on texts, and how much of it is constant.",
}
"""Of each command the first paragraph of its function's docstring."""
_FUNCTIONS = {"list": "lists:list_studies"}
"""Functions and files below this package that do not have the command's name."""


def load_command(name: str) -> TyperCommand:
    """Import a command."""
    single = typer.Typer(add_completion=False)
    function = _FUNCTIONS.get(name, f"{name}:{name}")
    single.command(name)(resolve_name(f"{__name__}.{function}"))
    command = typer.main.get_command(single)
    assert isinstance(command, TyperCommand)
    return command


class LazyCommand(TyperCommand):
    """A command of which a list of commands knows the help; calling it imports it."""

    # Typer's class of contexts is public in some of its versions only.
    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Make the context of the imported command."""
        with Interruption():
            command = load_command(str(self.name))
        return command.make_context(info_name, args, parent, **extra)


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
        typer.echo(f"papa {version('papa-attention')}")
        raise typer.Exit


def _never_called() -> None:
    """Stand in for a command until ``LazyCommand`` imports it."""


for command_name, command_help in COMMANDS.items():
    app.command(command_name, cls=LazyCommand, short_help=command_help)(_never_called)
