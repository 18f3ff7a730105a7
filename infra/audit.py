"""What PAPA is built on, looked over: known vulnerabilities, licences, and a bill of materials for
a release.

``make audit`` runs it with the tools of the extra ``audit``; results go to ``build/audit``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "audit"
PERMISSIVE = re.compile(
    r"\b(?:MIT|0?BSD|Apache|ISCL?|PSF|Python Software Foundation|Zlib|CC0|Unlicense|BSL-1\.0|HPND|"
    r"CNRI-Python|LLVM)\b"
)
_BETWEEN = re.compile(r"\s*(?:;|\bAND\b|\bWITH\b|[()])\s*")


class AuditError(Exception):
    """Something that a release must not have."""


def tools() -> list[str]:
    """The extra's requirements."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[str] = tomllib.load(file)["project"]["optional-dependencies"]["audit"]
    return found


def is_permissive(licence: str) -> bool:
    """Whether every part of a licence is; of alternatives (OR) one is enough."""
    parts = [part for part in _BETWEEN.split(licence) if part]
    return bool(parts) and all(
        any(PERMISSIVE.search(one) and "GPL" not in one for one in re.split(r"\bOR\b", part))
        for part in parts
    )


def unnamed(licences: Sequence[dict[str, str]], policy: str) -> list[str]:
    """The packages under licences that are not permissive, or not known, and that the policy, which
    is SECURITY.md, does not name in backticks.
    """
    return [
        f"{one['Name']} ({one['License']})"
        for one in licences
        if not is_permissive(one["License"]) and f"`{one['Name'].lower()}`" not in policy
    ]


def vulnerabilities(document: dict[str, Any]) -> str:
    """What pip-audit wrote, in one sentence; a known vulnerability is an ``AuditError``."""
    packages = document["dependencies"]
    known = [
        f"{one['name']} {one['version']}: {two['id']}"
        for one in packages
        for two in one.get("vulns", ())
    ]
    if known:
        raise AuditError(
            f"known vulnerabilities: {', '.join(known)}: raise these versions in constraints.txt"
        )
    skipped = [one for one in packages if "skip_reason" in one]
    if len(skipped) == len(packages):
        return (
            "vulnerabilities: not looked up, as PyPI's advisory service does not know these "
            "packages or is not reached"
        )
    rest = f"; {len(skipped)} of them could not be looked up" if skipped else ""
    return f"vulnerabilities: none known in {len(packages)} packages{rest}"


def main(binaries: Path, environment: Path) -> None:
    """Write the three lists of the packages of a Python, by the tools in ``binaries``, and say what
    they hold.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = RESULTS / "vulnerabilities.json"
    found.unlink(missing_ok=True)
    pinned = ["-r", str(ROOT / "constraints.txt"), "--no-deps", "--disable-pip"]
    pinned += ["--progress-spinner", "off"]
    audited = _run(binaries / "pip-audit", *pinned, "--format", "json", "--output", str(found))
    if found.exists():
        print(vulnerabilities(json.loads(found.read_text())))
    else:
        last = (audited.stderr.strip().splitlines() or ["no message"])[-1]
        print(
            "vulnerabilities: not looked up, as the advisory service of PyPI cannot be reached "
            f"({last[:200]})"
        )
    listed = _run(
        binaries / "pip-licenses",
        f"--python={environment}",
        "--format=json",
        "--from=mixed",
        "--with-urls",
    )
    listed.check_returncode()
    (RESULTS / "licences.json").write_text(listed.stdout)
    licences = json.loads(listed.stdout)
    missing = unnamed(licences, (ROOT / "SECURITY.md").read_text())
    if missing:
        raise AuditError(
            f"licences that SECURITY.md does not name: {', '.join(missing)}: name them, or do "
            "without"
        )
    print(
        f"licences: {len(licences)} packages, "
        f"{sum(not is_permissive(one['License']) for one in licences)} of them under licences that "
        "are not permissive or not declared, all named in SECURITY.md"
    )
    bill = RESULTS / "bill-of-materials.cdx.json"
    described = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    described += ["--output-reproducible"]
    _run(
        binaries / "cyclonedx-py", "environment", str(environment), *described, "-o", str(bill)
    ).check_returncode()
    print(
        f"bill of materials: {len(json.loads(bill.read_text())['components'])} components in {bill}"
    )


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["tools"]:
        print("\n".join(tools()))
    else:
        try:
            main(Path(sys.argv[1]), Path(sys.argv[2]))
        except AuditError as problem:
            sys.exit(f"error: {problem}")
