"""What is written runs: the page on the library pasted as one script, and the examples in
docstrings.
"""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

import papa

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
HEAD_MASK = PAGE.parent / "how-to" / "head-mask.md"


@pytest.mark.slow
def test_the_page_runs_when_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 10
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "pasted"})
    printed = capsys.readouterr().out
    assert "<all-MiniLM-L6-v2: 6 layers of 12 heads, width 384, 32 slots, on" in printed
    assert "torch.Size([6, 12, 32, 32])" in printed
    assert "texts is one string: give a list, such as ['one string']" in printed
    assert (tmp_path / "scores.png").stat().st_size > 10_000
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 1 + 3 * 2


def test_the_page_on_head_masks_runs_when_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", HEAD_MASK.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(blocks), str(HEAD_MASK), "exec"), {"__name__": "pasted"})
    assert capsys.readouterr().out.splitlines() == ["True True", "torch.Size([1, 2])", "8 4"]


def test_the_page_and_the_surface_name_the_same() -> None:
    reference = PAGE.read_text().partition("## Reference")[2]
    named = set(re.findall(r"`(\w+)`", reference))
    results = {"CacheSavings", "Fidelity", "Measurement", "SeedScore"}
    explained = {*results, "ConstantMatrices", "Decoder", "TextEncoder", "TrainedLambda"}
    assert named == set(papa.__all__) - explained


WITH_EXAMPLES = ["ablating", "constants", "describing", "effects", "encoder", "fidelity", "lambdas"]
WITH_EXAMPLES += ["measuring", "savings", "scoring", "steps"]


@pytest.mark.parametrize(
    "module", [*(f"papa.library.{name}" for name in WITH_EXAMPLES), "papa.spec.head_scores"]
)
def test_the_examples_in_docstrings_run(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.failed == 0
    assert found.attempted > 0


def test_every_public_name_is_documented() -> None:
    assert set(papa.__all__) <= set(dir(papa))
    assert all(getattr(papa, name).__doc__ for name in papa.__all__)
    with pytest.raises(AttributeError, match="module 'papa' has no attribute 'avrage'"):
        _ = papa.avrage  # type: ignore[attr-defined]
