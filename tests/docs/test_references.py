"""The references in docs/reference are those of the code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PAGES = ("study.md", "commands.md", "library.md", "columns.md")


@pytest.mark.server
@pytest.mark.parametrize("name", PAGES)
def test_a_reference_is_up_to_date(name: str, written: dict[str, str]) -> None:
    assert (FOLDER / name).read_text() == written[name], "run python -m docs.generators.references"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """What the generator writes, in a process whose signatures no check has changed."""
    imports = "import json; from docs.generators.references import reference_pages"
    program = f"{imports}; print(json.dumps(reference_pages()))"
    printed = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
    import json

    return json.loads(printed.splitlines()[-1])


@pytest.mark.server
def test_every_reference_is_generated(written: dict[str, str]) -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES) == set(written)
