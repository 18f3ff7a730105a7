"""``report.html`` in Chromium."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from papa.reporting.report import render_page as written
from papa.scores.order_comparison import compare_orders
from tests.reporting.browser import Page, chromium
from tests.reporting.studies import average_of, findings, results, scores_of

pytestmark = pytest.mark.server

TASKS = (("cola", "matthews"), ("reviews", "accuracy"))
AVERAGE = average_of("a", layers=2, heads=12, slots=32, unseen=3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two encoders on two tasks, two kinds of constants, two head orders; one of hostile name."""
    names = ("a", "</script><b>other</b>")
    rows = results(names, TASKS, ("average", "zeros"), ("lambda", "first_to_last"), (1, 0.5, 0))
    all_findings = findings(
        rows,
        averages=[AVERAGE, average_of("b", slots=16)],
        heads=scores_of(AVERAGE),
        orders=compare_orders(rows, {}),
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(written(all_findings))
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(browser: Page, file: Path) -> Iterator[Page]:
    """The page, freshly opened; nothing in a test may make the console speak."""
    browser.emulate()
    browser.open(file)
    yield browser
    assert browser.messages() == []


def show(page: Page, number: int) -> None:
    page.run("document.querySelectorAll('.tile')[arguments[0]].click()", number)
    page.wait(
        lambda: page.run("return document.getElementById('zoom').dataset.ready") == f"0 {number}"
    )


def test_every_figure_is_drawn_without_the_network(page: Page, file: Path) -> None:
    rest = [address for address in page.requested() if not address.startswith(("data:", "blob:"))]
    assert set(rest) == {file.as_uri()}
    chart_count = len(page.all(".chart"))
    assert len(page.all(".chart svg")) == chart_count == 2 + 2 + 1 + 1
    assert len(page.all(".tile canvas")) == 24 + 6
    assert page.all("main b") == []


def test_a_tile_has_the_colours_of_its_matrix(page: Page) -> None:
    """Bright on the diagonal of head 0, which stands there; head 1 rests on [CLS]."""
    bright = """const canvas = document.querySelectorAll('.tile canvas')[arguments[0]];
        const {data} = canvas.getContext('2d').getImageData(0, 5, canvas.width, 1);
        return [data[4 * 5], data[0]]"""
    for head in (0, 1):
        on_diagonal, on_cls = page.run(bright, head)
        assert (on_diagonal > 200 > 100 > on_cls) == (head == 0)
        assert (on_cls > 200 > 100 > on_diagonal) == (head == 1)


def test_a_matrix_in_large_has_the_averages_entries(page: Page) -> None:
    show(page, 17)
    assert page.all("#zoom-title")[0].text.startswith("a · reviews, L1H5: ")
    page.run("document.querySelectorAll('#zoom button[data-figure]')[2].click()")
    rows = list(csv.DictReader(io.StringIO(page.saved("zoom.csv"))))
    drawn = AVERAGE.matrices[1, 5]
    keep = [slot for slot in range(32) if not 28 <= slot < 31]
    assert len(rows) == len(keep) ** 2
    weights = np.array([float(row["weight"]) for row in rows]).reshape(len(keep), -1)
    np.testing.assert_allclose(
        weights, drawn[keep][:, keep].numpy(), atol=0.004 * float(drawn.max())
    )
    assert [rows[0]["from"], rows[-1]["to"]] == ["[CLS]", "[SEP]"]
    page.run("document.querySelector('button[data-by=\"1\"]').click()")
    page.wait(lambda: "L1H6" in page.all("#zoom-title")[0].text)


def test_a_figure_is_saved_on_white(page: Page) -> None:
    page.emulate(scheme="dark")
    first = page.run("return document.querySelector('.chart').dataset.figure")
    page.run("document.querySelectorAll('figure button')[0].click()")
    text = page.saved(f"{first}.svg")
    ElementTree.fromstring(text)
    assert "var(--" not in text
    assert 'fill="white"' in text


def test_the_data_of_a_figure_are_saved(page: Page) -> None:
    first = page.run("return document.querySelector('.chart').dataset.figure")
    page.run("document.querySelectorAll('figure button')[2].click()")
    rows = list(csv.DictReader(io.StringIO(page.saved(f"{first}.csv"))))
    assert {row["task"] for row in rows} == {"cola"}
    assert len(rows) == 2 * 2 * 2 * 3, "as many lines as are drawn, at three fractions"


def test_a_table_is_saved_as_shown(page: Page) -> None:
    page.run("document.querySelector('button[data-table]').click()")
    table = list(csv.reader(io.StringIO(page.saved("Scores.csv"))))
    assert table == page.run(
        "return [...document.querySelector('table').rows].map("
        "row => [...row.cells].map(one => one.textContent))"
    )


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_readable_text_fits_the_window(page: Page, width: int, scheme: str) -> None:
    page.emulate(width=width, scheme=scheme)
    assert page.run("return document.documentElement.scrollWidth") <= width
    colours = page.run(
        "const {color, backgroundColor} = getComputedStyle(document.body);"
        "return [color, backgroundColor,"
        " getComputedStyle(document.querySelector('.chart svg text')).fill]"
    )
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours]
    assert (bright[0] > bright[1]) == (scheme == "dark")
    assert abs(bright[2] - bright[1]) > 150
