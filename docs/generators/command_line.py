"""The reference of the command line, written from the Typer application when the site is built: a
hook of mkdocs.
"""

from __future__ import annotations

import re

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click

from papa.flows.cli import app


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated page."""
    files.append(File.generated(config, "reference/commands.md", content=command_page()))
    return files


def command_page() -> str:
    """Every command with its arguments and options, as Markdown."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="papa", title="The command line"
    )
    # The contents beside the page list the commands, uncut.
    text = re.sub(r"^\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text, flags=re.MULTILINE)
    text = text.replace("[[", "[").replace("]]", "]")
    return re.sub(r"^(#+) `papa (\S+)`$", r"\1 \2", text, flags=re.MULTILINE)
