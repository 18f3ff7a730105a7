"""How commands print what they say."""

from __future__ import annotations

import codecs
import locale
import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text


def settle_streams() -> None:
    """Open standard streams that are closed, as under cron, on nothing; read and write files in
    UTF-8, whatever the locale; and print what the terminal's encoding lacks as "?".
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    if codecs.lookup(locale.getencoding()).name != "utf-8" and not sys.flags.utf8_mode:
        # Python reads it as it starts; so do workers and servers.
        os.environ["PYTHONUTF8"] = "1"
        os.environ.setdefault("PYTHONIOENCODING", f"{sys.stdout.encoding}:replace")
        os.execv(sys.executable, sys.orig_argv)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


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
