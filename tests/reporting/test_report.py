"""The report as files."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml

from papa.reporting.details import Provenance
from papa.reporting.paper import PaperReference
from papa.reporting.report import Extras, write_report
from papa.reporting.summary import read_summary, summarise
from papa.spec import StudySpec
from tests.reporting.heads import heads_of
from tests.reporting.studies import markdown_of, results, study

FILES = {"results.parquet", "summary.csv", "scores.png", "scores.svg", "report.md", "report.html"}


class Page(HTMLParser):
    """Collects tags, addresses and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img", "br", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def written(folder: Path, frame: pandas.DataFrame, **extras: Any) -> tuple[str, str]:
    """The report of made-up results, as Markdown and as HTML."""
    write_report(folder, study(frame), frame, summarise(frame), extras=Extras(**extras))
    return (folder / "report.md").read_text(), (folder / "report.html").read_text()


@pytest.fixture
def frame() -> pandas.DataFrame:
    return results()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report of ``frame``, which was not there before."""
    folder = tmp_path_factory.mktemp("plain") / "new" / "folder"
    written(folder, results())
    return folder


def test_every_file_is_there_and_reads_back(plain: Path, frame: pandas.DataFrame) -> None:
    assert {path.name for path in plain.iterdir()} == FILES
    pandas.testing.assert_frame_equal(pandas.read_parquet(plain / "results.parquet"), frame)
    pandas.testing.assert_frame_equal(read_summary(plain / "summary.csv"), summarise(frame))


def test_markdown_holds_answer_table_unseen_share_seeds_and_specification(
    tmp_path: Path, frame: pandas.DataFrame
) -> None:
    rows, cut = {"train": 2000, "validation": 500}, {"train": 3, "validation": 1}
    text, _ = written(tmp_path, frame, corpora={"reviews": {"rows": rows, "texts_cut": cut}})
    assert "With every head constant, all-MiniLM-L6-v2 keeps" in text
    assert markdown_of(summarise(frame)) in text
    counts = ("0.120 %", "2,000 / 500", "3 / 1", "Seeds: 0, 1, 2")
    for told in ("(scores.svg)", *counts, "Precision: float32, features stored in float32"):
        assert told in text, told
    stored = text.split("```yaml\n")[1].split("```")[0]
    assert StudySpec.model_validate(yaml.safe_load(stored)) == study(frame)


def test_html_stands_alone_and_is_well_formed(tmp_path: Path, frame: pandas.DataFrame) -> None:
    page = Page(written(tmp_path, frame, heads=[heads_of()])[1])
    assert not page.open
    assert page.tags.count("img") == 2 * 3
    assert all(re.match(r"data:|#\w", address) for address in page.addresses)


def test_html_shows_hostile_names_as_text(tmp_path: Path) -> None:
    """Nor does a name end the embedded data: the page's own three scripts are all that it has."""
    name = "</script><script>alert(1)</script><b>bold</b>"
    frame = results(encoders=(name,)).assign(one_answer="<i>yes</i>")
    _, text = written(tmp_path, frame, heads=[heads_of(encoder=name)])
    for hostile in ("<b>bold", "<i>yes", "<script>alert"):
        assert hostile not in text, hostile
    assert "&lt;b&gt;bold" in text
    assert Page(text).tags.count("script") == 3
    (shown,) = re.findall(r'<script type="application/json" id="shown">(.*?)</script>', text)
    assert json.loads(shown)["matrices"][0]["title"] == f"{name} · reviews", (
        "the data are what they were"
    )


def test_html_lets_nothing_run_but_its_own_scripts(plain: Path) -> None:
    text = (plain / "report.html").read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes


def test_html_of_the_largest_page_stays_below_5_mb(tmp_path: Path, frame: pandas.DataFrame) -> None:
    """12 × 12 heads at S=128, whose noise no image compresses."""
    written(tmp_path, frame, heads=[heads_of(layers=12, heads=12, slots=128)])
    assert 3_000_000 < (tmp_path / "report.html").stat().st_size < 5_000_000


def test_html_says_where_its_numbers_come_from(tmp_path: Path, frame: pandas.DataFrame) -> None:
    when, command = "2026-01-02T03:04:05+00:00", "papa run 'a b.yaml'"
    facts = Provenance(when, command, "a machine", 63.0, 7500.0, "f" * 40, {"W": "0f"})
    markdown, page = written(tmp_path, frame, provenance=facts)
    text = html.unescape(page)
    for told in (when, command, "a machine", "1 min 3 s", "2 h 5 min", "f" * 40, "0f"):
        assert told in text
    for page in (text, markdown):
        assert "the same scores to the last bit" in page


def test_markdown_escapes_names(tmp_path: Path) -> None:
    """A folder's name is shown as it is: no markup of ours, no HTML, no link, and no end of a code
    block.
    """
    name = "# <b>bold</b> [c](http://d) ```\n# Title https://e.com www.e.com &lt; a|b $x$"
    frame = results(encoders=(name, "other")).assign(one_answer="<i>yes</i>")
    text, _ = written(tmp_path, frame)
    before, specification = text.split("yaml\n", maxsplit=1)
    links, marks = ("https://e", "www.e", "[c]"), ("\n# Title", "\n# \\<b", " a|b", " $x$")
    for hostile in ("<b>", "<i>", " &lt;", *links, *marks):
        assert hostile not in before, hostile
    tables = [line for line in before.splitlines() if line.startswith("|")]
    assert "a\\|b" in tables[2], "one cell"
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in tables[:4]]
    assert bars == [bars[0]] * 4
    assert before.endswith("````")
    assert "\n````\n" in specification


def test_what_learned_nothing_is_marked_in_both_pages(
    tmp_path: Path, frame: pandas.DataFrame
) -> None:
    for place, words in (("told", 0.6), ("untold", 0.9)):
        for text in written(tmp_path / place, frame.assign(word_embeddings=words)):
            assert ("of its score" in text) == (place == "told")
            assert ("† all-MiniLM-L6-v2, reviews: the original does not beat" in text) == (
                place == "untold"
            )
            assert "word embeddings alone" in text


def test_contrasts_of_constants_have_a_table_of_their_own(tmp_path: Path, plain: Path) -> None:
    text, _ = written(tmp_path, results(constants=("average", "zeros")))
    assert "| average − zeros |" in text.partition("## Contrasts")[2].partition("##")[0]
    without = (plain / "report.md").read_text()
    assert "Contrasts" not in without
    assert "told apart" not in without, "of one order"


def test_several_encoders_get_the_scatter_and_matrices_their_heat_maps(tmp_path: Path) -> None:
    written(tmp_path, results(("a", "b", "c")), heads=[heads_of(), heads_of("b")])
    names = {path.name for path in tmp_path.iterdir()}
    figures = ("drops", "heads", "matrices")
    assert names == FILES | {f"{name}.{end}" for name in figures for end in ("png", "svg")}


def test_the_papers_numbers_stand_beside_ours(tmp_path: Path, frame: pandas.DataFrame) -> None:
    scores = pandas.DataFrame(
        [("all-MiniLM-L6-v2", "reviews", "average", "lambda", 1.0, 0.987, "made up")],
        columns=["encoder", "task", "constants", "order", "fraction", "score", "source"],
    )
    paper = PaperReference(scores=scores, notes=("A statement of the paper.",))
    for text in written(tmp_path, frame, paper=paper):
        assert "0.987" in text
        assert "A statement of the paper." in text


def test_writing_twice_gives_the_same_bytes(
    tmp_path: Path, plain: Path, frame: pandas.DataFrame
) -> None:
    written(tmp_path, frame)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (plain / name).read_bytes()


def test_what_was_found_in_a_corpus_is_told_under_the_answer(tmp_path: Path) -> None:
    notes = {"warnings": ["every validation label is 'a' (32 of them)"]}
    text, _ = written(tmp_path, results(), corpora={"reviews": {"notes": notes}})
    answer = text.partition("## Answer")[2].partition("##")[0]
    assert "- Beware, reviews: every validation label is 'a' (32 of them)." in answer
