"""``papa init``: a short study with comments, to start from."""

from pathlib import Path
from typing import Annotated

import typer

from papa.flows.cli import options


def init(
    to: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write; must not exist.")
    ] = Path("study.yaml"),
) -> None:
    """Write a short study file with comments."""
    with options.one_sentence():
        with to.open("xb") as file:
            file.write(Path(__file__).with_name("study.yaml").read_bytes())
        typer.echo(f"Written to {to}; edit it, then: papa check {to}")
