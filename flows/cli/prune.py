"""``papa prune``: list what is unused in a store, and delete it on request."""

from __future__ import annotations

import time

from rich.console import Console
from rich.filesize import decimal
from rich.table import Column

from flows.cli.terminal import print_table, say
from flows.progress import duration
from papa.errors import ArtifactError
from papa.storage.artifacts import remove
from papa.study.store import Store, check_marked, running
from papa.study.unused import Unused, survey


def prune(store: Store, console: Console, *, really: bool) -> None:
    """Print what is unused; with ``really`` delete exactly that, unless a study uses the store: it
    uses artifacts that nothing refers to yet.
    """
    check_marked(store.address)
    unused, users = survey(store), ", ".join(running(store))
    if not unused:
        say(console, f"Everything of PAPA's in {store.address} is in use.")
        return
    rows = (_row(entry, store) for entry in unused)
    where = Column("Where", overflow="fold")
    print_table(console, ("What", "Why", where, "Size", "Age"), rows)
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


def _row(entry: Unused, store: Store) -> tuple[str, ...]:
    where, age = entry.address.removeprefix(f"{store.address}/"), time.time() - entry.modified
    return entry.name, entry.reason, where, decimal(entry.size), duration(age)
