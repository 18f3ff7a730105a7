"""The reference of the command line, as Markdown, from the Typer application."""

from __future__ import annotations

import re

import typer
from typer.cli import get_docs_for_click
from typer.core import TyperGroup

from papa.flows.cli import COMMANDS, app, load_command


def command_page() -> str:
    """Return the page: every command with its arguments and options."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    group.commands = {name: load_command(name) for name in COMMANDS}
    text = get_docs_for_click(
        obj=group, ctx=typer.Context(group), name="papa", title="Command line"
    )
    # The headings list the commands already.
    text = re.sub(r"^\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text, flags=re.MULTILINE)
    text = text.replace("[[", "[").replace("]]", "]")
    text = re.sub(r"^(#+) `papa (\S+)`$", r"\1 \2", text, flags=re.MULTILINE)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).rstrip() + "\n"
