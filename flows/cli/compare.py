"""``papa compare``: finished studies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli import options
from flows.cli.options import argument, option


def compare(
    studies: Annotated[
        list[str],
        argument(metavar="STUDY...", help="Names of finished studies, or folders of results."),
    ],
    to: Annotated[
        Path | None, option("--to", metavar="FOLDER", help="Write the table and a figure there.")
    ] = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    verbose: options.Verbose = False,
) -> None:
    """Show finished studies side by side."""
    with options.one_sentence(verbose):
        from papa.reporting.tables import marks, score_tables, summary_table
        from papa.scores.summary import compared
        from papa.study.manifest import open_study

        opened, console = options.open_store(store), Console()
        comparison = compared({study: open_study(opened, study).results for study in studies})
        if console.is_terminal:
            console.print(summary_table(comparison))
        else:
            # A line for each row: a file or another program has no width.
            tables = (f"{table.heading}\n\n{table.markdown}" for table in score_tables(comparison))
            typer.echo("\n".join([*tables, *marks(comparison)]))
        if to is None:
            return
        from papa.reporting.figures import FORMATS, scores_figure

        to.mkdir(parents=True, exist_ok=True)
        comparison.to_csv(to / "compare.csv", index=False)
        for ending in FORMATS:
            scores_figure(comparison).save(to / f"compare{ending}")
        typer.echo(f"written  {to}/compare.csv, compare.svg, compare.png, compare.pdf")
