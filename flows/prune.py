"""What ``papa prune`` does: show what serves nothing in a store, and delete it when asked to."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from flows.processes import Process
from flows.progress import duration
from papa.errors import ArtifactError
from tasks.running import running, withdraw
from tasks.store import Store
from tasks.unused import Unused, delete, unused


def prune(store: Store, console: Console, *, really: bool) -> None:
    """Print what serves nothing; with ``really`` delete it, unless a study uses the store.

    A study that runs uses artifacts that nothing refers to yet, so nothing is deleted meanwhile.

    Raises:
        ArtifactError: there is no store, it cannot be used, or a study uses it.
        TransientError: it does not answer.
    """
    store.check()
    if not store.is_remote and not store.root.is_dir():
        raise ArtifactError(f"there is no store at {store.root}: give another folder with --store")
    found = unused(store)
    if not found:
        console.print(f"Everything in {store.address} is in use.", soft_wrap=True, highlight=False)
        return
    console.print(_table(found, store))
    everything = f"{len(found)} in all, {_size(sum(one.size for one in found))}"
    users = _users(store)
    if not really:
        busy = f" A study uses the store ({users}); wait for its end." if users else ""
        console.print(f"{everything}: nothing was deleted; --delete does it.{busy}", soft_wrap=True, highlight=False)
        return
    if users:
        raise ArtifactError(f"a study uses {store.address} ({users}), so nothing was deleted: run again when it ended")
    for one in found:
        delete(one)
    for lock in store.locks.glob("*.lock"):
        lock.unlink(missing_ok=True)
    console.print(f"{everything}: deleted.", soft_wrap=True, highlight=False)


def _users(store: Store) -> str:
    """The processes that use the store, as people read it; what died on this machine is withdrawn."""
    alive = []
    for name, silent in running(store).items():
        process = Process.parse(name)
        if process is not None and process.gone:
            withdraw(store, name)
        else:
            where = f"process {process.pid} on {process.host}" if process else name
            alive.append(f"{where}, last heard of {duration(silent)} ago")
    return "; ".join(alive)


def _table(found: list[Unused], store: Store) -> Table:
    table = Table("What", "Why")
    table.add_column("Where", overflow="fold")
    for title in ("Size", "Age"):
        table.add_column(title, justify="right")
    now = time.time()
    for one in found:
        where = one.address.removeprefix(f"{store.address}/")
        table.add_row(one.name, one.reason, where, _size(one.size), _age(now - one.modified))
    return table


def _size(size: float) -> str:
    """Bytes as people say them: "42 kB", "1.3 GB"."""
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _age(seconds: float) -> str:
    return duration(seconds) if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"
