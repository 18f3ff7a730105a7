"""The commands that read what a store holds: studies, reports, and encoders to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.options import (
    DEFAULT_STORE,
    StoreAddress,
    Verbose,
    argument,
    one_sentence,
    open_store,
    option,
)
from papa.errors import SpecError

Finished = Annotated[
    str, argument(metavar="STUDY", help="Its name in the store, its file, or its results' folder.")
]
OnlyOne = Annotated[str | None, option(help="The study's only one without it.")]


def heads(
    study: Finished,
    max_drop: Annotated[
        str,
        typer.Option(
            "--max-drop", metavar="SHARE", help="A relative drop of the score, such as 0.5%."
        ),
    ] = "1%",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_tsv: Annotated[
        bool, typer.Option("--tsv", help="Print the score of every head, a line for each layer.")
    ] = False,
    store: StoreAddress = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Show how many and which heads may become constant within a drop of the score."""
    with one_sentence(verbose):
        from flows.cli.heads import parse_share, show_heads, show_scores
        from papa.study.manifest import open_study

        if as_json and as_tsv:
            raise SpecError("--json and --tsv are two forms of one answer: give one of them")
        share, found = parse_share(max_drop), open_study(open_store(store), study)
        if as_tsv:
            show_scores(found)
        else:
            show_heads(found, share, as_json=as_json)


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


def compare(
    studies: Annotated[
        list[str],
        argument(metavar="STUDY...", help="Names of finished studies, or folders of results."),
    ],
    to: Annotated[
        Path | None, option("--to", metavar="FOLDER", help="Write the table and a figure there.")
    ] = None,
    store: StoreAddress = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Show finished studies side by side."""
    with one_sentence(verbose):
        from flows.cli.compare import compare_studies
        from papa.study.manifest import open_study

        opened = open_store(store)
        for study in studies:
            if studies.count(study) > 1:
                raise SpecError(
                    f"papa compare: study '{study}' is named twice, expected different ones: a "
                    "store keeps the latest results under a name, so run the other setting under "
                    "another (--set name=…)"
                )
        found = {study: open_study(opened, study).results for study in studies}
        compare_studies(found, to, Console())


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
