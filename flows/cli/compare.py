"""``papa compare``: finished studies side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pandas import DataFrame
from rich.console import Console

from flows.cli.terminal import say
from papa.errors import SpecError
from papa.reporting.drawing import FORMATS
from papa.reporting.tables import contrast_table, marks, score_tables, summary_table
from papa.scores.summary import compared
from papa.storage.atomic import write_atomically


def compare_studies(results: Mapping[str, DataFrame], to: Path | None, console: Console) -> None:
    """Print the table of some studies' results; write it, with its figure, to a folder."""
    # What draws is here; the other commands need none of it.
    from papa.reporting.figures import scores_figure

    comparison = compared(results)
    if console.is_terminal:
        console.print(summary_table(comparison))
    else:
        # A line for each row: a file or another program has no width.
        for table in filter(None, (*score_tables(comparison), contrast_table(comparison))):
            say(console, f"{table.heading}\n\n{table.markdown}")
        for sentence in marks(comparison):
            say(console, sentence)
    if to is None:
        return
    try:
        to.mkdir(parents=True, exist_ok=True)
        write_atomically(to / "compare.csv", comparison.to_csv(index=False))
        figure = scores_figure(comparison, "compare")
        for ending in FORMATS:
            figure.save(to / f"compare.{ending}")
    except OSError as error:
        raise SpecError(
            f"{to} cannot be written ({error.strerror}): give another folder with --to"
        ) from None
    say(console, f"figure  {to}/compare.svg, compare.png, compare.pdf")
    say(console, f"table   {to}/compare.csv")
