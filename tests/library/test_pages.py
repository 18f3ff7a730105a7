"""What is written runs: pages on the library as scripts, and examples in docstrings."""

import doctest
import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

import papa
import papa.library
from tests.library.pages import PAGE, pasted

HOW_TO = PAGE.parent / "how-to"


@pytest.mark.unchecked
def test_the_page_runs_when_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pasted(PAGE)
    printed = capsys.readouterr().out
    assert "<all-MiniLM-L6-v2: 6 layers of 12 heads, width 384, 32 slots, on" in printed
    assert "torch.Size([6, 12, 32, 32])" in printed
    assert (tmp_path / "scores.png").stat().st_size > 10_000
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 1 + 3 * 3


def test_the_page_on_head_masks_runs_when_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    pasted(HOW_TO / "head-mask.md")
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["True", "torch.Size([1, 2])"]
    assert printed[2].startswith("8 ['agreement', 'divergence', 'loss_after'")


def test_the_page_on_sweeps_saves_scores_when_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "papa-store" / "studies" / "sweep"
    study.mkdir(parents=True)
    effects = [1, 2, 3, 0, 5, 6, 0, 0]
    heads = pandas.DataFrame(np.ndindex(2, 4), columns=["layer", "head"]).assign(score=effects)
    heads.to_parquet(study / "heads.parquet")
    pasted(HOW_TO / "sweep.md")
    assert capsys.readouterr().out == "2 ((1, 2), (1, 3))\n"
    assert (tmp_path / "duo" / "full_attention_heads.tsv").is_file()
    assert json.loads((tmp_path / "heads.json").read_text())["1-1"] == [6]


def evaluations(number: int) -> dict[str, object]:
    page = HOW_TO / "evaluate.md"
    return pasted(page, page.read_text().split("\n## ")[number])


def test_an_ablated_model_in_the_evaluators_of_sentence_transformers() -> None:
    left = evaluations(1)
    assert left["before"] == left["after"]
    assert left["before"] != left["inside"]


def test_the_reference_names_every_public_function() -> None:
    reference = (PAGE.parent / "reference" / "library.md").read_text()
    listed = set(re.findall(r"^## `papa\.(\w+)`", reference, re.M))
    assert listed == set(papa.__all__) <= set(dir(papa))
    assert all(getattr(papa, name).__doc__ for name in papa.__all__)


@pytest.mark.parametrize("name", sorted(set(papa.__all__) - {"Measurement", "PapaError", "Task"}))
def test_the_examples_in_docstrings_run(name: str) -> None:
    """After what they share."""
    shared_names: dict[str, object] = {}
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner()
    for documented in (papa.library, getattr(papa, name)):
        (example,) = finder.find(documented, name, extraglobs=shared_names)
        assert example.examples
        assert runner.run(example, clear_globs=False).failed == 0
        shared_names |= example.globs
