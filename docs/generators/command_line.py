"""The reference of the command line, as Markdown, from the Typer application."""

from __future__ import annotations

import re

import typer
from typer.cli import get_docs_for_click

from papa.flows.cli import app


def command_page() -> str:
    """Return the page: every command with its arguments and options."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="papa", title="Command line"
    )
    # The headings list the commands already.
    text = re.sub(r"^\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text, flags=re.MULTILINE)
    text = text.replace("[[", "[").replace("]]", "]")
    text = re.sub(r"^(#+) `papa (\S+)`$", r"\1 \2", text, flags=re.MULTILINE)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).rstrip() + "\n"
