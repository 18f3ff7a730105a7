"""``papa compare``: finished studies side by side."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from papa.flows.cli import options
from papa.flows.cli.options import argument, option
from papa.reporting.figures import FORMATS
from papa.reporting.score_figures import scores_figure
from papa.reporting.tables import score_tables, summary_table
from papa.scores.summary import compare_studies


def compare(
    studies: Annotated[
        list[str],
        argument(metavar="STUDY...", help="Names of finished studies, or folders of results."),
    ],
    to: Annotated[
        Path | None,
        option("--to", metavar="FOLDER", help="Folder to write the table and a figure to."),
    ] = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
) -> None:
    """Compare finished studies in one table."""
    with options.one_sentence():
        console = Console()
        comparison = compare_studies(
            {study: options.open_finished(store, study).results for study in studies}
        )
        shown = options.printable_names(comparison)
        if console.is_terminal:
            console.print(summary_table(shown))
        else:
            # A line for each row: a file or another program has no width.
            tables = [table.titled_markdown for table in score_tables(shown)]
            typer.echo("\n".join(tables))
        if to is None:
            return

        to.mkdir(parents=True, exist_ok=True)
        comparison.to_csv(to / "compare.csv", index=False)
        for ending in FORMATS:
            scores_figure(comparison).save(to / f"compare{ending}")
        typer.echo(f"written  {to}/compare.csv, compare.svg, compare.png, compare.pdf")
