"""Tables with their numbers written out: as Markdown, in a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from papa.reporting.wording import HEADINGS

TEXT_COLUMNS = frozenset(
    {
        *HEADINGS.values(),
        *("Other", "Metric", "Source", "Corpus", "Beats both"),
        *("Measure", "Relation", "Attention", "Pair", "Layer.head", "Pattern", "Description"),
    }
)


@dataclass(frozen=True)
class WrittenTable:
    """A table with its numbers written out."""

    heading: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""

    @classmethod
    def of(cls, heading: str, rows: Sequence[Mapping[str, str]], note: str = "") -> WrittenTable:
        """From the cells of each row by their heading."""
        headings = list(rows[0]) if rows else []
        return cls(heading, headings, [list(row.values()) for row in rows], note)

    @property
    def markdown(self) -> str:
        return markdown_table(self.headings, self.rows)

    def terminal(self, section: int = 0) -> Table:
        """Its first column holds all names; intervals and answers go below their numbers, and a
        line after every ``section`` rows.
        """
        numbers = [at for at, heading in enumerate(self.headings) if heading not in TEXT_COLUMNS]
        words = numbers[0]
        table = Table(show_lines=words > 0)
        if words:
            table.add_column(", ".join(self.headings[:words]), overflow="fold")
        for heading in self.headings[words:]:
            table.add_column(heading, justify="right", no_wrap=words > 0)
        for number, row in enumerate(self.rows, start=1):
            cells = row[words:]
            if words:
                below = [cell.replace(" ± ", "\n±").replace(" (", "\n(") for cell in cells]
                cells = [", ".join(row[:words]), *below]
            table.add_row(*map(escape, cells), end_section=number == section)
        return table


_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)"
    r"|^[#+=-](?=[\s#=-]|$)"  # headings, lists, rules
    r"|:(?=//)|(?<=www)\.|@(?=[\w-]+\.)"  # what GitHub makes a link without being asked
)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, on one line: names come from folders and files."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.split()))


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of even width; all but text columns are right-aligned."""
    columns = []
    for heading, *cells in zip(headings, *rows, strict=True):
        first, *others = map(markdown_text, (heading, *cells))
        width = max(3, *map(len, (first, *others)))
        if heading in TEXT_COLUMNS:
            columns.append([cell.ljust(width) for cell in (first, "-" * width, *others)])
        else:
            rule = f"{'-' * (width - 1)}:"
            columns.append([cell.rjust(width) for cell in (first, rule, *others)])
    return "".join(f"| {' | '.join(row)} |\n" for row in zip(*columns, strict=True))
