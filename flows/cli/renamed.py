"""Options of earlier versions: a command that is given one says its new name."""

from typing import Any

import typer
from typer.core import TyperCommand

RENAMED_OPTIONS = {"--own": "--data", "--fraction": "--keep", "--constants": "--substitute"}
"""The new name of each renamed option."""


class Command(TyperCommand):
    """A command that refuses the earlier names of its options with their new ones."""

    # Typer's class of ctx is public in some of its versions only.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of a command line.

        Raises:
            typer.BadParameter: An argument is the earlier name of an option of this command.
        """
        options = {name for parameter in self.params for name in parameter.opts}
        for argument in args:
            name = argument.partition("=")[0]
            if RENAMED_OPTIONS.get(name) in options:
                raise typer.BadParameter(f"{name} is now {RENAMED_OPTIONS[name]}", ctx=ctx)
        return super().parse_args(ctx, args)
