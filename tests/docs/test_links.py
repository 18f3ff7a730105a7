"""What Markdown pages and docstrings name exists in a checkout: links, headings, paths, tests."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
PAGES = [name for name in FILES if name.endswith(".md")]
SOURCES = [name for name in FILES if name.endswith((".py", ".sh", ".toml", "Makefile"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(
    r"(?<![\w./-])((?:papa|tasks|flows|tests|docs|benchmarks|studies|infra|notebooks)/[\w./-]*\w)"
    r"(?:::(\w+))?"
)
_TEST_FILE = re.compile(r"(?<![\w/.])test_\w+\.py")
OF_HISTORY = "CHANGELOG.md"
"""It names what was there when a version was made."""


def without_code_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub and mkdocs link to them."""
    headings = re.findall(r"^#+ (.*)$", without_code_blocks(page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def exists(name: str) -> bool:
    return any(file == name or file.startswith(f"{name}/") for file in FILES)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings_of_the_checkout(name: str) -> None:
    page = ROOT / name
    dead = []
    for link in _LINK.findall(without_code_blocks(page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        is_there = target.exists() and (not path or exists(str(target.relative_to(ROOT))))
        if not is_there or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


@pytest.mark.parametrize("name", [name for name in [*PAGES, *SOURCES] if name != OF_HISTORY])
def test_paths_that_are_named_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    missing = [path for path in _TEST_FILE.findall(text) if not any_file(path)]
    for path, test in _PATH.findall(text):
        # In code, what is no module may be a path in a store or on the site.
        if name not in PAGES and not path.endswith(".py"):
            continue
        if not (exists(path) or exists(f"{path}.py")):
            missing.append(path)
        elif test and f"def {test}(" not in (ROOT / path).read_text():
            missing.append(f"{path}::{test}")
    assert not missing


def any_file(name: str) -> bool:
    return any(file.endswith(f"/{name}") for file in FILES)


def test_the_tree_of_packages_is_the_contract_of_imports() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = re.findall(r"^  (\w+)(?:/|\.py) ", page.partition("\ntasks/")[0], re.M)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (
        contract["layers"]
        for contract in contracts["contracts"]
        if contract.get("containers") == ["papa"]
    )
    *upper, lowest = layers
    assert tree == upper[::-1]
    assert all(f"`{module}.py`" in page for module in lowest.split(" : "))
