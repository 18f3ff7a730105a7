"""The pictures of README and the gallery are those of the study file and of the code."""

import re

import pytest

from docs.generators import gallery


def test_the_results_are_of_the_study_file() -> None:
    assert gallery.DIGEST.read_text().strip() == gallery.study_digest(), "run make picture"


@pytest.mark.parametrize("name", ["scores.svg", "drops.svg", "heads.svg", "joint_effects.svg"])
def test_a_picture_is_what_the_code_draws_of_the_results(name: str) -> None:
    pictures = gallery.result_figures(*gallery.stored_results())
    stored = (gallery.FOLDER / name).read_text()
    assert without_numbered_ids(stored) == without_numbered_ids(pictures[name]), "run make picture"


def without_numbered_ids(svg: str) -> str:
    """An SVG without the numbers of gradients, which a process counts up."""
    return re.sub(r"(gradient|clip)_?\d+", r"\1", svg)


def test_the_page_shows_the_results() -> None:
    summary, _, effects = gallery.stored_results()
    expected = gallery.page(summary, effects)
    assert (gallery.DOCS / "gallery.md").read_text() == expected
    other_summary = summary.assign(mean=summary["mean"] / 2)
    other_effects = effects.assign(joint=effects["joint"] / 2)
    assert gallery.page(other_summary, effects) != expected, "negative control"
    assert gallery.page(summary, other_effects) != expected, "negative control"
