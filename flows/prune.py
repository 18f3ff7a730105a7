"""``papa prune``: list what is unused in a store, and delete it on request."""

from __future__ import annotations

import time

from rich.console import Console
from rich.filesize import decimal
from rich.table import Column, Table
from rich.text import Text

from flows.progress import duration
from flows.terminal import say
from papa.errors import ArtifactError
from papa.storage.artifacts import remove
from papa.study.store import Store, check_marked, running
from papa.study.unused import survey


def prune(store: Store, console: Console, *, really: bool) -> None:
    """Print what is unused; with ``really`` delete exactly that, unless a study uses the store: it
    uses artifacts that nothing refers to yet.
    """
    check_marked(store.address)
    unused, now = survey(store), time.time()
    if not unused:
        say(console, f"Everything of PAPA's in {store.address} is in use.")
        return
    table = Table("What", "Why", Column("Where", overflow="fold"), "Size", "Age")
    for entry in unused:
        where = entry.address.removeprefix(f"{store.address}/")
        numbers = decimal(entry.size), duration(now - entry.modified)
        table.add_row(*map(Text, (entry.name, entry.reason, where, *numbers)))
    console.print(table)
    users = ", ".join(f"{name}, {duration(age)} ago" for name, age in running(store).items())
    everything = f"{len(unused)} in all, {decimal(sum(entry.size for entry in unused))}"
    if not really:
        busy = f" A study uses the store ({users}); wait for its end." if users else ""
        say(console, f"{everything}: nothing was deleted; --delete does it.{busy}")
    elif users:
        raise ArtifactError(
            f"a study uses {store.address} ({users}): nothing was deleted, run again when it ended"
        )
    else:
        for entry in unused:
            remove(entry.address)
        say(console, f"{everything}: deleted.")
