"""``papa prune``: list what is unused in a store, and delete it on request."""

import time
from typing import Annotated

import typer

from papa.errors import printable
from papa.flows.cli import options
from papa.flows.progress import duration, size_label
from papa.storage.artifacts import remove
from papa.storage.locks import active_processes
from papa.storage.unused import find_unused


def prune(
    store: options.StoreAddress = options.DEFAULT_STORE,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the listed artifacts (default: list only).")
    ] = False,
) -> None:
    """List the unused artifacts of a store with size and age; delete them with --delete."""
    with options.one_sentence():
        opened = options.marked_store(store)
        # A study uses artifacts that nothing refers to yet.
        unused = find_unused(opened)
        busy = printable(active_processes(opened))
        if not unused:
            typer.echo(f"Every artifact in {opened.address} is in use.")
            return
        rows = []
        for entry in unused:
            where = entry.address.removeprefix(f"{opened.address}/")
            how_old = duration(time.time() - entry.modified)
            rows.append((entry.name, entry.reason, where, size_label(entry.size), how_old))
        headings = ("What", "Why", "Where", "Size", "Age")
        options.print_table(headings, rows)
        everything = f"{len(unused)} in all, {size_label(sum(entry.size for entry in unused))}"
        if not delete:
            wait = f" A study uses the store ({busy}): wait until it ends." if busy else ""
            typer.echo(f"{everything}: nothing was deleted; add --delete to delete.{wait}")
        else:
            options.refuse_deletion_in_use(opened)
            for entry in unused:
                remove(entry.address)
            typer.echo(f"{everything}: deleted.")
