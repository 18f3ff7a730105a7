"""``make audit``: what counts as found, in the forms that its tools write."""

from __future__ import annotations

import pytest

from infra.audit import AuditError, is_permissive, unnamed, vulnerabilities

PACKAGE = {"name": "torch", "version": "2.13.0", "vulns": []}
SKIPPED = {"name": "ray", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("licence", "permissive"),
    [
        ("MIT License", True),
        ("Apache-2.0 AND MIT", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MPL-2.0 OR MIT", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", False),
        ("Mozilla Public License 2.0 (MPL 2.0)", False),
        ("GNU Library or Lesser General Public License (LGPL)", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_which_licences_are_permissive(licence: str, permissive: bool) -> None:
    assert is_permissive(licence) == permissive


def test_other_licences_must_be_named() -> None:
    licences = [
        {"Name": "Certifi", "License": "MPL-2.0"},
        {"Name": "torch", "License": "BSD-3-Clause"},
    ]
    assert unnamed(licences, "no name") == ["Certifi (MPL-2.0)"]
    assert not unnamed(licences, "- `certifi`: MPL-2.0")


def test_a_vulnerability_ends_the_audit_and_nothing_looked_up_is_said() -> None:
    with pytest.raises(AuditError, match=r"torch 2\.13\.0: PYSEC-1: raise these versions"):
        vulnerabilities({"dependencies": [{**PACKAGE, "vulns": [{"id": "PYSEC-1"}]}, SKIPPED]})
    assert (
        vulnerabilities({"dependencies": [PACKAGE]}) == "vulnerabilities: none known in 1 packages"
    )
    assert "1 of them could not be looked up" in vulnerabilities(
        {"dependencies": [PACKAGE, SKIPPED]}
    )
    assert "not looked up" in vulnerabilities({"dependencies": [SKIPPED]})
