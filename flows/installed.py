"""The versions of Python and of packages, against those that PAPA's own metadata ask for."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from flows.finding import Finding

_DISTRIBUTION = "papa-attention"


def installed() -> list[Finding]:
    """A finding for Python, PAPA, and each package that it needs."""
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
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            findings.append(_package(requirement))
    return findings


def _package(requirement: Requirement) -> Finding:
    name, advice = requirement.name, f"pip install '{requirement.name}{requirement.specifier}'"
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
