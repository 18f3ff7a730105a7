"""``papa doctor``: what is installed, what this machine has, what answers, and what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import DEFAULT_STORE, RayAddress, StoreAddress, one_sentence

if TYPE_CHECKING:
    from rich.table import Table

    from flows.installed import Finding

_COLOURS = {"ok": "green", "low": "yellow", "not configured": "dim"}


def doctor(
    store: StoreAddress = DEFAULT_STORE,
    ray_address: RayAddress = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at what is installed, at this machine and at the services a study would use, and say
    what to do.

    It ends with 1 where a study that is started here and now would fail.
    """
    with one_sentence():
        from rich.console import Console

        console, findings = Console(highlight=False), []
        for group, found in _groups(store, ray_address):
            findings += [{"group": group, **asdict(finding)} for finding in found]
            if not as_json:
                console.print(group.capitalize(), style="bold")
                console.print(_table(found))
        broken = [finding["what"] for finding in findings if finding["broken"]]
        if as_json:
            print(json.dumps({"usable": not broken, "findings": findings}, indent=1))
        else:
            mend = (
                f"Studies cannot run: mend {', '.join(broken)}."
                if broken
                else "Studies can run here."
            )
            console.print(mend, markup=False)
    raise typer.Exit(1 if broken else 0)


def _groups(store: str, ray_address: str | None) -> Iterator[tuple[str, list[Finding]]]:
    """One group after the other, as each takes longer than the one before."""
    from flows.environment import quiet_engines
    from flows.installed import installed

    quiet_engines()
    yield "packages", installed()
    from flows.machine import machine, torch_here
    from flows.services import services
    from papa.study.store import Store

    opened = Store(store)
    yield "machine", machine(opened)
    yield "services", services(opened, ray_address)
    yield "torch", torch_here()


def _table(findings: list[Finding]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(no_wrap=True, min_width=14)
    table.add_column(no_wrap=True, min_width=15)
    table.add_column(overflow="fold")
    for finding in findings:
        colour = _COLOURS.get(finding.state, "red")
        table.add_row(f"[{colour}]{finding.state}[/]", escape(finding.what), escape(finding.found))
        if finding.advice:
            table.add_row("", "", escape(f"→ {finding.advice}"))
    return table
