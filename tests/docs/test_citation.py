"""CITATION.cff and the BibTeX of a report cite the same software and the same paper."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from papa.reporting.cite import PAPER, citation

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cited() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def names(authors: list[dict[str, str]]) -> list[str]:
    return [author.get("name") or author["family-names"] for author in authors]


def field(bibtex: str, name: str) -> str:
    match = re.search(rf"\b{name} = \{{(.*?)\}},\n", bibtex, re.DOTALL)
    assert match is not None, name
    return " ".join(match[1].replace("{", "").replace("}", "").split())


def test_the_software_is_cited_with_its_version_and_date(cited: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    preferred = cited["preferred-citation"]
    for entry in (cited, preferred):
        assert entry["type"] == "software"
        assert entry["title"] == "PAPA"
        assert entry["version"] == project["version"]
        assert isinstance(entry["date-released"], date)
    assert preferred["authors"] == cited["authors"]


def test_the_paper_is_a_reference_with_its_authors_and_date(cited: dict[str, Any]) -> None:
    (paper,) = cited["references"]
    authors = [name.partition(",")[0] for name in field(PAPER, "author").split(" and ")]
    assert names(paper["authors"]) == authors
    assert paper["title"] == field(PAPER, "title")
    assert paper["year"] == int(field(PAPER, "year"))


def test_a_report_cites_the_software_as_the_repository_does(cited: dict[str, Any]) -> None:
    software = citation("a_study", "0" * 64).removeprefix(PAPER)
    assert field(software, "author") == names(cited["authors"])[0]
    assert int(field(software, "year")) == cited["date-released"].year
    assert "0" * 64 in software
