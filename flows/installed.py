"""What ``papa doctor`` finds of one thing, and the packages that it finds."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

State = Literal[
    "ok", "low", "unsupported", "missing", "unusable", "refused", "not reachable", "not configured"
]
_DISTRIBUTION = "papa-attention"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        found: what was seen; no password and no token.
        advice: what to do where it is not well.
        broken: whether a study that is started here and now fails by it.
    """

    what: str
    state: State
    found: str
    advice: str = ""
    broken: bool = False


def installed() -> list[Finding]:
    """A finding for Python, PAPA, and each package that a study needs, against PAPA's metadata."""
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
    for requirement in map(Requirement, wanted):
        if requirement.marker is None or requirement.marker.evaluate({"extra": "studies"}):
            findings.append(_package(requirement))
    return findings


def _package(requirement: Requirement) -> Finding:
    name = requirement.name
    wanted = f"{_DISTRIBUTION}[studies]" if requirement.marker else f"{name}{requirement.specifier}"
    advice = f"pip install '{wanted}'"
    try:
        return _compared(name, version(name), requirement.specifier, advice)
    except PackageNotFoundError:
        return Finding(
            name, "missing", f"not installed ({requirement.specifier})", advice, broken=True
        )


def _compared(what: str, found: str, supported: SpecifierSet, advice: str) -> Finding:
    if supported.contains(found, prereleases=True):
        return Finding(what, "ok", f"{found} ({supported})")
    return Finding(what, "unsupported", f"{found} ({supported})", advice)
