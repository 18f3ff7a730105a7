"""``papa doctor``: what is installed, what this machine has, what answers, and what to do."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import TYPE_CHECKING, Literal

import typer

from flows.options import DEFAULT_STORE, RayAddress, StoreAddress, one_sentence

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from rich.table import Table

State = Literal[
    "ok", "low", "unsupported", "missing", "unusable", "refused", "not reachable", "not configured"
]
_COLOURS = {"ok": "green", "low": "yellow", "not configured": "dim"}
_DISTRIBUTION = "papa-attention"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: what was seen, without passwords and tokens; what to do where
    it is not well; and whether a study that is started here and now fails by it.
    """

    what: str
    state: State
    found: str
    advice: str = ""
    broken: bool = False


def doctor(store: StoreAddress = DEFAULT_STORE, ray_address: RayAddress = None) -> None:
    """Look at what is installed, at this machine and at the services a study would use, and say
    what to do.

    It ends with 1 where a study that is started here and now would fail.
    """
    with one_sentence():
        from rich.console import Console

        console, broken = Console(highlight=False), list[str]()
        for group, found in _groups(store, ray_address):
            console.print(group.capitalize(), style="bold")
            console.print(_table(found))
            broken += [finding.what for finding in found if finding.broken]
        mend = f"Studies cannot run: mend {', '.join(broken)}." if broken else ""
        console.print(mend or "Studies can run here.", markup=False)
    raise typer.Exit(1 if broken else 0)


def _groups(store: str, ray_address: str | None) -> Iterator[tuple[str, list[Finding]]]:
    """One group after the other, as each takes longer than the one before."""
    from flows.environment import quiet_engines

    quiet_engines()
    yield "packages", installed()
    from flows.surroundings import machine, services, torch_here
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


def installed() -> list[Finding]:
    """A finding for Python, PAPA, and each package that a study needs, against PAPA's metadata."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    try:
        wanted, own = requires(_DISTRIBUTION) or [], version(_DISTRIBUTION)
        pythons = SpecifierSet(metadata(_DISTRIBUTION)["Requires-Python"] or "")
    except PackageNotFoundError:
        advice = "install it, as with: pip install -e ."
        return [Finding(_DISTRIBUTION, "missing", "it is not installed here", advice, broken=True)]
    findings = [
        _compared("Python", platform.python_version(), pythons, f"use a Python {pythons}"),
        Finding(_DISTRIBUTION, "ok", own),
    ]
    for package in map(Requirement, wanted):
        name, supported = package.name, package.specifier
        if package.marker is not None and not package.marker.evaluate({"extra": "studies"}):
            continue
        install = f"{_DISTRIBUTION}[studies]" if package.marker else f"{name}{supported}"
        advice = f"pip install '{install}'"
        try:
            findings.append(_compared(name, version(name), supported, advice))
        except PackageNotFoundError:
            found = f"not installed ({supported})"
            findings.append(Finding(name, "missing", found, advice, broken=True))
    return findings


def _compared(what: str, found: str, supported: SpecifierSet, advice: str) -> Finding:
    fits = supported.contains(found, prereleases=True)
    both = f"{found} ({supported})"
    return Finding(what, "ok", both) if fits else Finding(what, "unsupported", both, advice)
