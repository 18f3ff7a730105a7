"""``report.html`` in Chromium: of a real study of two tasks, of three tasks and four constants."""

from __future__ import annotations

import io
import json
import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas
import pytest
from safetensors.torch import load_file
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from papa.reporting.report import Extras, write_report
from papa.reporting.summary import read_summary, summarise
from tests.finished import finish_study
from tests.flows.conftest import SMALL, write_study
from tests.reporting.browser import Page, chromium
from tests.reporting.heads import heads_of
from tests.reporting.studies import results, study

pytestmark = pytest.mark.server

PAIRS = {
    "name": "pairs",
    "kind": "pair",
    "columns": {"text": "a", "text_pair": "b", "label": "label"},
    "labels": ["</script><b>other</b>", "same"],
    "metric": "accuracy",
    "slots": 32,
    "probe": {"learning_rate": 5e-4, "batch_size": 16, "epochs": 1},
}
CHANGES = {"constants": ["average", "zeros"], "fractions": [1, 0.75, 0], "name": "several"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, shallow: str) -> Path:
    """The results of a study of two tasks, three kinds of choice and a hostile label."""
    here = tmp_path_factory.mktemp("several")
    words = ["a good film", "a bad film", "the plot moves", "nothing happens here", "it rains"]
    others = [row * (1 + row % 2) % 5 for row in range(48)]
    pairs = [
        {"a": words[row % 5], "b": words[other], "label": int(other == row % 5)}
        for row, other in enumerate(others)
    ]
    source = {"kind": "files"}
    for split in ("train", "validation"):
        source[split] = str(here / f"{split}.jsonl")
        (here / f"{split}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    tasks = [*SMALL["tasks"], {**PAIRS, "source": source}]  # type: ignore[misc]
    file = write_study(here, {**SMALL, **CHANGES, "encoders": [shallow], "tasks": tasks})
    finish_study(file, here / "store")
    return here / "store" / "studies" / "several"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of made-up results: three tasks, four kinds of constants, two head orders."""
    here = tmp_path_factory.mktemp("large")
    tasks = (("cola", "matthews"), ("mrpc", "f1"), ("reviews", "accuracy"))
    constants = ("average", "identity", "toeplitz", "zeros")
    frame = results(tasks=tasks, constants=constants, orders=("lambda", "first_to_last"))
    heads = [heads_of(task=task, layers=6, heads=12, slots=32) for task, _ in tasks]
    lambdas = {(own.encoder, own.task): own.lambdas for own in heads if own.lambdas}
    extras = Extras(heads=heads, lambdas=lambdas)
    write_report(here, study(frame), frame, summarise(frame), extras=extras)
    return here


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(browser: Page, folder: Path) -> Iterator[Page]:
    """The real report, freshly opened."""
    yield from opened(browser, folder)


@pytest.fixture(params=["folder", "large"])
def either(browser: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Each of the two reports, freshly opened."""
    yield from opened(browser, request.getfixturevalue(request.param))


def opened(browser: Page, folder: Path) -> Iterator[Page]:
    """A report, opened; nothing in a test may make the console speak."""
    browser.emulate()
    browser.open(folder / "report.html")
    yield browser
    assert browser.messages() == []


def zoomed(page: Page, number: int) -> None:
    page.wait(
        lambda: page.run("return document.getElementById('zoom').dataset.ready") == f"0 {number}"
    )


def test_it_opens_fetches_nothing_and_shows_hostile_names_as_text(page: Page, folder: Path) -> None:
    charts = page.all(".chart svg")
    # Two tasks by score, constants, head orders, their differences and λ; the drops.
    assert len(charts) == 2 * 5 + 1
    page.all(".tile")[0].click()
    zoomed(page, 0)
    own = (folder / "report.html").as_uri()
    rest = [address for address in page.requested() if not address.startswith(("data:", "blob:"))]
    assert set(rest) == {own}
    assert page.all("main b:not(.facts b)") == []
    text = page.run("return document.querySelector('main').textContent")
    assert "</script><b>other</b>" in text


def test_the_switch_moves_fractions_to_their_true_distances(page: Page) -> None:
    places = """return [...document.querySelectorAll('[data-chart="score-reviews"] .mark-symbol path')]
        .filter(one => one.getAttribute('aria-label')?.includes('share of heads'))
        .map(one => one.getCTM().e)"""  # noqa: E501
    even = page.run(places)
    assert len(even) == 3
    assert even[1] - even[0] == pytest.approx(even[2] - even[1], abs=0.5)
    page.run(
        "const input = document.getElementById('spacing'); input.value = 'true';"
        "input.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    true = page.wait(lambda: (found := page.run(places)) != even and found)
    assert true[2] - true[0] == pytest.approx(even[2] - even[0], abs=0.5)
    assert true[1] - true[0] == pytest.approx((even[2] - even[0]) / 4, abs=0.5), (
        "3/4 is a quarter of the way"
    )


def test_every_head_has_an_image_and_a_row(page: Page) -> None:
    assert len(page.all(".tile")) == 2 * 24
    sizes = page.run(
        "return [...document.querySelectorAll('.tile img')].map(one => one.naturalWidth)"
    )
    assert min(sizes) > 4
    assert len(page.all("#heads ~ details tbody tr")) == 2 * 24
    assert len(page.all(".encoder:first-of-type .tile:first-child .ruler .mark")) == 2 * 24


def test_tiles_are_sorted_by_a_score_and_back(page: Page) -> None:
    shown = """return [...document.querySelectorAll('.encoder:first-of-type .tile')].map(one =>
        [Number(one.dataset.number), JSON.parse(document.getElementById('shown').textContent)
            .matrices[0].scores['λ'][one.dataset.number]])"""
    choose = """const order = document.getElementById('tile-order'); order.value = arguments[0];
        order.dispatchEvent(new Event('change'))"""
    before = page.run(shown)
    assert [number for number, _ in before] == list(range(24))
    page.run(choose, "λ")
    weights = [weight for _, weight in page.run(shown)]
    assert weights == sorted(weights)
    assert weights != [weight for _, weight in before]
    assert not any(layer.is_displayed() for layer in page.all(".layer"))
    page.run(choose, "")
    assert page.run(shown) == before
    assert all(layer.is_displayed() for layer in page.all(".encoder[open] .layer"))


def test_the_table_of_heads_is_sorted_and_filtered(page: Page) -> None:
    column = """const table = document.querySelector('#heads ~ details table');
        const at = [...table.querySelectorAll('th')].findIndex(one =>
            one.textContent === arguments[0]);
        if (arguments[1]) table.querySelectorAll('th button')[at].click();
        return [...table.querySelectorAll('tbody tr:not([hidden])')].map(one =>
            one.cells[at].textContent)"""
    before = page.run(column, "λ", False)
    rising = page.run(column, "λ", True)
    assert rising == sorted(before, key=float) != before
    assert page.run(column, "λ", True) == sorted(before, key=float, reverse=True)
    layers = page.run(column, "Layer", True)
    assert layers == sorted(layers, key=int)
    page.all("#head-filter")[0].send_keys("DIAGONAL")
    patterns = page.run(column, "Pattern", False)
    assert 0 < len(patterns) < 24
    assert all("diagonal" in pattern for pattern in patterns)


def test_values_under_the_pointer_and_in_the_csv_are_the_averages(page: Page, folder: Path) -> None:
    (average,) = [
        path
        for path in (folder.parents[1] / "artifacts" / "average").glob("*/metadata.json")
        if json.loads(path.read_text())["name"].endswith("reviews")
    ]
    matrices = load_file(average.parent / "constants.safetensors")["matrices"]
    number = 17
    matrix = matrices[1, 5]
    page.all(".tile")[number].click()
    zoomed(page, number)
    assert page.all("#zoom-title")[0].text.endswith("reviews, layer 1, head 5")

    page.all("#zoom-csv")[0].click()
    cells = pandas.read_csv(io.StringIO(page.saved("all-MiniLM-L6-v2-reviews-layer-1-head-5.csv")))
    slots = {"[CLS]": 0, "[SEP]": 31}
    assert len(cells) > 100
    near = 0.005 * float(matrix.max())

    def average_at(*labels: str) -> float:
        return float(matrix[*(slots[one] if one in slots else int(one) for one in labels)])

    for cell in cells.to_dict("records"):
        expected = average_at(cell["slot_from"], cell["slot_to"])
        assert cell["mean_attention"] == pytest.approx(expected, abs=near)

    canvas = page.all("#zoom-chart canvas")[0]
    ActionChains(page.driver).move_to_element(canvas).perform()
    shown = page.wait(
        lambda: page.run("return document.querySelector('#vg-tooltip-element.visible')?.innerText")
    )
    row, column, weight = re.findall(r"(\S+)(?:\n|$)", shown)[:3]
    assert float(weight) == pytest.approx(average_at(row, column), abs=1.2 * near)


def test_the_keyboard_opens_moves_on_and_closes(page: Page) -> None:
    page.all(".tile")[0].send_keys(Keys.ENTER)
    zoomed(page, 0)
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT).perform()
    zoomed(page, 1)
    ActionChains(page.driver).send_keys(Keys.ARROW_LEFT).perform()
    zoomed(page, 0)
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    page.wait(lambda: not page.run("return document.getElementById('zoom').open"))
    assert page.run("return document.activeElement.dataset.number") == "0"


def test_figures_are_saved_as_svg_and_their_data_as_csv(
    page: Page, folder: Path, tmp_path: Path
) -> None:
    page.emulate(scheme="dark")
    for figure in page.all("figure"):
        name = figure.find_element("css selector", ".chart").get_attribute("data-chart")
        for link in figure.find_elements("css selector", ".downloads > *"):
            page.run("arguments[0].click()", link)
        time.sleep(0.25)  # Chromium drops what a page saves beyond ten files within one second.
        drawing = page.saved(f"{name}.svg")
        assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in drawing, "it stands without the page's style"
        assert 'fill="white"' in drawing, "on white, also for a reader of dark pages"
        frame = pandas.read_csv(io.StringIO(page.saved(f"{name}.csv")))
        assert len(frame) >= 1
    page.run("arguments[0].click()", page.all('#tables ~ .downloads a[download="summary.csv"]')[0])
    copy = tmp_path / "summary.csv"
    copy.write_text(page.saved("summary.csv"))
    pandas.testing.assert_frame_equal(read_summary(copy), read_summary(folder / "summary.csv"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_keeps_its_contrast_in_both_themes(either: Page, scheme: str) -> None:
    either.emulate(scheme=scheme)
    paper = either.run("return getComputedStyle(document.body).backgroundColor")
    assert (luminance(paper) < 0.1) == (scheme == "dark")
    colour = "return getComputedStyle(document.querySelector(arguments[0])).color"
    for selector in ("body", ".note", ".choice", "nav a"):
        assert contrast(either.run(colour, selector), paper) >= 4.5, selector
    inks = either.run(
        "return [...document.querySelectorAll('.chart svg text')].map(one => "
        "getComputedStyle(one).fill)"
    )
    assert inks
    assert all(contrast(ink, paper) >= 4.5 for ink in set(inks))


def test_nothing_is_wider_than_a_phone(either: Page) -> None:
    either.emulate(width=390)
    either.all(".tile")[0].click()
    zoomed(either, 0)
    wider = """return [...document.querySelectorAll('body *')].filter(one =>
        one.getBoundingClientRect().right > 390.5
        && !one.closest('.scroll, pre')).map(one => one.outerHTML.slice(0, 99))"""
    either.wait(lambda: not either.run(wider))
    assert either.run("return document.documentElement.scrollWidth") == 390


def test_paper_is_light_whole_and_without_controls(either: Page) -> None:
    either.emulate(media="print", scheme="dark")
    assert luminance(either.run("return getComputedStyle(document.body).color")) < 0.1
    display = "return getComputedStyle(document.querySelector(arguments[0])).display"
    for selector in ("nav", ".choice", ".downloads"):
        assert either.run(display, selector) == "none"
    either.run("dispatchEvent(new Event('beforeprint'))")
    assert either.all("details:not([open])") == []
    either.run("dispatchEvent(new Event('afterprint'))")
    assert either.all("details:not([open])") != []


def test_nothing_is_cut_on_paper_or_between_pages(either: Page) -> None:
    """A4 without its margins has about 680 by 1,000 pixels."""
    either.emulate(media="print", width=680)
    either.run("dispatchEvent(new Event('beforeprint'))")
    cut = """return [...document.querySelectorAll(
        ':is(main, footer) :not(svg, svg *)')].filter(one =>
        one.getBoundingClientRect().right > document.documentElement.clientWidth + .5
        || (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflow !== 'visible')
        ).map(one => one.outerHTML.slice(0, 99))"""
    either.wait(lambda: not either.run(cut))
    boxes = """return [...document.querySelectorAll("figure, .layer, .claims li, .note")].map(one =>
        [getComputedStyle(one).breakInside, one.getBoundingClientRect().height])"""
    for inside, height in either.run(boxes):
        assert (inside, height < 1000) == ("avoid", True)
    either.run("dispatchEvent(new Event('afterprint'))")


def test_figures_drawn_for_the_screen_fit_the_paper(either: Page) -> None:
    beyond = """document.body.style.width = "600px";
        return [...document.querySelectorAll(".chart svg")].map(one =>
            one.getBoundingClientRect().right - one.closest(".chart").getBoundingClientRect().right)"""  # noqa: E501
    assert max(either.run(beyond)) > 100, "a screen this narrow draws them anew"
    either.emulate(media="print")
    assert max(either.run(beyond)) < 1


def test_no_line_at_zero_goes_through_a_name(either: Page) -> None:
    boxes = """return [...document.querySelectorAll('[data-chart="relative-drop"] ' + arguments[0])]
        .map(one => one.getBoundingClientRect()).map(one => [one.top, one.bottom])"""
    names = either.run(boxes, ".mark-text.role-mark text")
    lines = either.run(boxes, ".mark-rect.role-mark path")
    assert len(names) == len(lines) > 1
    for (top, bottom), (start, end) in product(names, lines):
        assert bottom < start + 2 or top > end


def test_a_screen_reader_finds_a_name_on_every_control_and_figure(page: Page) -> None:
    page.all(".tile")[0].click()
    zoomed(page, 0)
    page.run("document.getElementById('zoom').close()")
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = [
        node
        for node in tree
        if not node["ignored"]
        and node["role"]["value"] in ("button", "link", "combobox", "graphics-document")
    ]
    assert len(controls) > 72, "those of the open part"
    assert all(node["name"]["value"].strip() for node in controls)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2) of ``rgb(…)``."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio (WCAG 2) of two colours."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
