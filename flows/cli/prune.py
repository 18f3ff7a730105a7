"""``papa prune``: list what is unused in a store, and delete it on request."""

from __future__ import annotations

import time

from rich.console import Console
from rich.filesize import decimal
from rich.table import Column

from flows.cli.terminal import print_table, say
from flows.progress import duration
from papa.errors import ArtifactError
from papa.processes import Process
from papa.storage.artifacts import remove
from papa.study.store import Store, check_marked, running, words_of
from papa.study.unused import Unused, survey


def prune(store: Store, console: Console, *, really: bool) -> None:
    """Print what is unused; with ``really`` delete exactly that, unless a study uses the store.

    A running study uses artifacts that nothing refers to yet, so nothing is deleted meanwhile.
    """
    check_marked(store.address)
    findings = survey(store)
    users, ended = _users(store)
    unused = [*findings.unused, *ended]
    if findings.foreign:
        left = ", ".join(_short(address, store) for address in findings.foreign)
        say(console, f"Not PAPA's, left: {left}.")
    if not unused:
        say(console, f"Everything of PAPA's in {store.address} is in use.")
        return
    where = Column("Where", overflow="fold")
    numbers = (Column(heading, justify="right") for heading in ("Size", "Age"))
    print_table(console, ("What", "Why", where, *numbers), (_row(entry, store) for entry in unused))
    everything = f"{len(unused)} in all, {decimal(sum(entry.size for entry in unused))}"
    if not really:
        busy = f" A study uses the store ({users}); wait for its end." if users else ""
        say(console, f"{everything}: nothing was deleted; --delete does it.{busy}")
        return
    if users:
        raise ArtifactError(
            f"a study uses {store.address} ({users}), so nothing was deleted: run again when it "
            "ended"
        )
    for entry in unused:
        remove(entry.address)
    say(console, f"{everything}: deleted.")


def _users(store: Store) -> tuple[str, list[Unused]]:
    """The processes that use the store, in words; and the registrations of those taken for dead."""
    alive, ended = [], []
    users = running(store)
    for name, idle in words_of(store).items():
        process = Process.parse(name)
        if name not in users or (process is not None and process.gone):
            place, since = f"{store.runs}/{name}", time.time() - idle
            ended.append(Unused(place, "run", "its process was killed", 0, since))
        else:
            where = f"process {process.pid} on {process.host}" if process else name
            alive.append(f"{where}, last heard of {duration(idle)} ago")
    return "; ".join(alive), ended


def _short(address: str, store: Store) -> str:
    return address.removeprefix(f"{store.address}/")


def _row(entry: Unused, store: Store) -> tuple[str, ...]:
    age, size = time.time() - entry.modified, decimal(entry.size)
    old = duration(age) if age < 48 * 3600 else f"{age / 86400:.0f} days"
    return entry.name, entry.reason, _short(entry.address, store), size, old
