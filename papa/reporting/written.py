"""Tables with their numbers written out: as Markdown, in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

_NUMBER = re.compile(r"[-+]?\d.*|–|", re.DOTALL)
_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)"
    r"|^[#+=-](?=[\s#=-]|$)"  # headings, lists, rules
    r"|:(?=//)|(?<=www)\.|@(?=[\w-]+\.)"  # what GitHub makes a link without being asked
)


@dataclass(frozen=True)
class WrittenTable:
    """A table with its numbers written out; its first columns are names."""

    heading: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""

    @classmethod
    def of(cls, heading: str, rows: Iterable[Mapping[str, str]], note: str = "") -> WrittenTable:
        """From the cells of each row by their heading."""
        rows = list(rows)
        headings = list(rows[0]) if rows else []
        return cls(heading, headings, [list(row.values()) for row in rows], note)

    @property
    def words(self) -> list[bool]:
        """Of each column, whether it holds words, and is aligned to the left."""
        return [not all(map(_NUMBER.fullmatch, cells)) for cells in zip(*self.rows, strict=True)]

    @property
    def markdown(self) -> str:
        """With columns of even width."""
        columns = []
        for words, cells in zip(
            self.words, zip(self.headings, *self.rows, strict=True), strict=True
        ):
            first, *others = map(markdown_text, cells)
            width = max(3, *map(len, (first, *others)))
            rule = "-" * width if words else f"{'-' * (width - 1)}:"
            aligned = str.ljust if words else str.rjust
            columns.append([aligned(cell, width) for cell in (first, rule, *others)])
        return "".join(f"| {' | '.join(row)} |\n" for row in zip(*columns, strict=True))

    def terminal(self) -> Table:
        """All names in one column; intervals and answers below their numbers."""
        names = max(1, [*self.words, False].index(False))
        table = Table(title=escape(self.heading), caption=escape(self.note), show_lines=True)
        table.add_column(escape(", ".join(self.headings[:names])), overflow="fold")
        for heading in self.headings[names:]:
            table.add_column(escape(heading), justify="right", no_wrap=True)
        for row in self.rows:
            below = [cell.replace(" ± ", "\n±").replace(" (", "\n(") for cell in row[names:]]
            table.add_row(*map(escape, (", ".join(row[:names]), *below)))
        return table


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, on one line: names come from folders and files."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.split()))
