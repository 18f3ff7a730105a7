"""How commands print what they say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is: brackets in a name are no markup, and no line is broken."""
    console.print(sentence, soft_wrap=True, highlight=False, markup=False)


def print_table(
    console: Console,
    headings: Iterable[str | Column],
    rows: Iterable[Iterable[str]],
    **settings: Any,
) -> None:
    """Print a table, whose cells are shown as they are; for ``settings`` see rich's ``Table``."""
    table = Table(*headings, **settings)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def print_rows(console: Console, rows: Iterable[Iterable[str]]) -> None:
    """Print a table for other programs: a line for each row, values parted by tabs."""
    for row in rows:
        print("\t".join(row), file=console.file)
