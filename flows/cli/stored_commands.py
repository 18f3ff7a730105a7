"""The commands that read what a store holds: studies, reports, and encoders to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.options import (
    DEFAULT_STORE,
    Finished,
    StoreAddress,
    Verbose,
    one_sentence,
    open_store,
    option,
)
from papa.errors import SpecError

OnlyOne = Annotated[str | None, option(help="The study's only one without it.")]


def export(
    study: Finished,
    to: Annotated[Path, option("--to", metavar="FOLDER", help="A new or empty folder.")],
    fraction: Annotated[
        float | None, option(help="Share of heads that stay input-dependent.")
    ] = None,
    max_drop: Annotated[
        str | None, option("--max-drop", metavar="SHARE", help="Instead of it: a drop, such as 1%.")
    ] = None,
    encoder: OnlyOne = None,
    task: OnlyOne = None,
    constants: Annotated[str, typer.Option(help="Kind of constant matrices.")] = "average",
    order: Annotated[str, typer.Option(help="Head order.")] = "lambda",
    store: StoreAddress = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Write an encoder with constant heads, from a finished study, as a folder that transformers
    loads.

    Give --fraction, or --max-drop for the most constant heads whose drop surely stays within it.
    """
    with one_sentence(verbose):
        from flows.cli.export import export_cell
        from flows.cli.heads import parse_share
        from papa.study.manifest import open_study

        if (fraction is None) == (max_drop is None):
            raise SpecError("give either --fraction, such as 0.125, or --max-drop, such as 1%")
        names = {"encoder": encoder, "task": task, "constants": constants, "order": order}
        export_cell(
            open_study(open_store(store), study),
            {what: name for what, name in names.items() if name is not None},
            to,
            Console(),
            fraction=fraction,
            max_drop=None if max_drop is None else parse_share(max_drop),
        )


def report(study: Finished, store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """Build a finished study's report again, from what it stored."""
    with one_sentence(verbose):
        from flows.cli.studies import rebuild_report

        rebuild_report(open_store(store), study, Console())


def list_studies(store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """List the studies of a store, how far they are, and where their reports are."""
    with one_sentence(verbose):
        from flows.cli.studies import show_studies

        show_studies(open_store(store), Console())


def prune(
    store: StoreAddress = DEFAULT_STORE,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete it; without this it is shown only.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show what nothing in a store refers to, with size and age; with --delete remove it."""
    with one_sentence(verbose):
        from flows.cli.prune import prune as show_unused

        show_unused(open_store(store), Console(), really=delete)
