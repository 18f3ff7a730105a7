"""The report's page, as text, and the files beside it."""

import base64
import hashlib
import html
import json
import re

import numpy as np
import pandas
import pytest

from papa.reporting.reference import REFERENCE_COLUMNS
from papa.reporting.report import render_page
from papa.scores.order_comparison import compare_orders
from tests.reporting.studies import average_of, findings, joint_effects, results, scores_of


def shown(text: str) -> dict[str, object]:
    (embedded,) = re.findall(r'<script type="application/json" id="shown">(.*?)</script>', text)
    data: dict[str, object] = json.loads(embedded)
    return data


@pytest.fixture(scope="module")
def frame() -> pandas.DataFrame:
    return results()


@pytest.fixture(scope="module")
def plain(frame: pandas.DataFrame) -> str:
    average = average_of()
    return render_page(findings(frame, averages=[average], heads=scores_of(average)))


def test_hostile_names_are_text() -> None:
    """Nor does a name end the embedded data: the page's own three scripts are all that it has."""
    name = "</script><script>alert(1)</script><b>bold</b>"
    rows = results(encoders=(name,)).assign(one_answer="<i>yes</i>")
    text = render_page(findings(rows, averages=[average_of(encoder=name)]))
    for hostile in ("<b>bold", "<i>yes", "<script>alert"):
        assert hostile not in text, hostile
    assert "&lt;b&gt;bold" in text
    assert shown(text)["matrices"][0]["title"] == f"{name} · reviews", "data are what they were"


def test_a_page_runs_only_its_scripts(plain: str, frame: pandas.DataFrame) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', plain)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'; ")
    scripts = re.findall(r"<script>(.*?)</script>", plain, flags=re.DOTALL)
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = [base64.b64encode(digest).decode() for digest in digests]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    embedded = shown(plain)
    assert len(embedded["datasets"]["summary"]) == len(findings(frame).summary)
    assert all("values" not in figure["data"] for figure in embedded["figures"].values())
    names = {figure["data"]["name"] for figure in embedded["figures"].values()}
    assert names == embedded["datasets"].keys()


def test_the_largest_page_stays_below_5_mb(frame: pandas.DataFrame) -> None:
    """12 × 12 heads at S=128, whose noise nothing compresses."""
    text = render_page(findings(frame, averages=[average_of(layers=12, heads=12, slots=128)]))
    assert 3_000_000 < len(text) < 5_000_000


@pytest.mark.parametrize(("slots", "together"), [(8, 1), (200, 2)])
def test_matrices_to_half_a_level(frame: pandas.DataFrame, slots: int, together: int) -> None:
    average = average_of(slots=slots, unseen=2)
    data = shown(render_page(findings(frame, averages=[average])))
    (drawn,) = data["matrices"]
    rows = len(drawn["labels"])
    levels = np.frombuffer(base64.b64decode(drawn["levels"]), np.uint8).reshape(6, rows, rows)
    assert data["unobserved"] not in levels, "slots never observed have no row"
    largest = np.array(drawn["largest"]).reshape(6, 1, 1)
    cell_means = (largest * (levels / data["top"]) ** 2)[:, 1, 2]
    assert drawn["labels"][:3] == ["[CLS]", *(["1", "2"] if together == 1 else ["1–2", "3–4"])]
    first = slice(1, 1 + together)
    second = slice(1 + together, 1 + 2 * together)
    sought = average.matrices.reshape(6, slots, slots)[:, first, second].mean(dim=(1, 2))
    np.testing.assert_allclose(cell_means, sought.numpy(), atol=0.004 * largest.max())


def test_a_page_has_its_provenance(frame: pandas.DataFrame) -> None:
    facts = {"Date": "2026-01-02T03:04:05+00:00", "Command": "papa run 'a b.yaml'", "W": "0f"}
    notes = {"warnings": ["every validation label is 'a' (32 of them)"]}
    rows = {"train": 2000, "validation": 500}
    texts = {"reviews": {"rows": rows, "texts_cut": {"train": 3, "validation": 1}, "notes": notes}}
    text = html.unescape(render_page(findings(frame, provenance=facts, texts=texts)))
    for sentence in (*facts.values(), "2,000 / 500", "3 / 1", "'a' (32 of them)", "0.120 %"):
        assert sentence in text, sentence


@pytest.mark.parametrize(("word_embeddings", "is_marked"), [(0.6, False), (0.9, True)])
def test_an_original_that_does_not_beat_its_baselines_is_marked(
    frame: pandas.DataFrame, word_embeddings: float, is_marked: bool
) -> None:
    text = render_page(findings(frame.assign(word_embeddings=word_embeddings)))
    assert ("† all-MiniLM-L6-v2, reviews:" in text) == is_marked


HEADINGS = (
    "Head orders compared",
    "Encoders compared",
    "Redundancy of heads",
    "Heads at a glance",
    "Contrasts",
)


def test_a_page_has_sections_of_its_data_alone(frame: pandas.DataFrame) -> None:
    rows = results(("a", "b"), constants=("average", "zeros"), orders=("lambda", "first_to_last"))
    average = average_of()
    paper = ("a", "reviews", "average", "lambda", 1.0, 0.987, "made up")
    text = render_page(
        findings(
            rows,
            orders=compare_orders(rows, {}),
            joint_effects=joint_effects(),
            averages=[average],
            heads=scores_of(average),
            agreement=[{"encoder": "a", "task": "reviews", "seeds": 1}],
            paper=pandas.DataFrame([paper], columns=list(REFERENCE_COLUMNS)),
        )
    )
    single = render_page(findings(frame))
    assert [heading in text for heading in HEADINGS] == [True] * 5
    assert [heading in single for heading in HEADINGS] == [False] * 5
    assert "0.987" in text, "the paper's score"
    assert "reviews</td><td>0.500</td>" in text, "of six heads three are diagonal"
