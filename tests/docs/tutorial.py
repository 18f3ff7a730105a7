"""The tutorial as a reader follows it: its commands, word for word, and what it shows of their
output.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.flows.conftest import environment

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def steps(page: str) -> list[tuple[str, str]]:
    """Each command of a page, and what the page says that it prints; "" where it says nothing."""
    return re.findall(r"^```shell\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", page, re.M | re.S)


def agrees(printed: str, shown: str) -> bool:
    """Whether an output holds the lines that a page shows: ``…`` is any text, decimals are any,
    blanks are one.
    """
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    literal = re.escape(" ".join(shown.split()).replace("…", "\0"))
    pattern = re.sub(r"(?:\\-)?\d+\\\.\d+", r"-?\\d+\\.\\d+", literal).replace("\0", ".*?")
    return re.search(pattern, " ".join(lines)) is not None


def follow(page: str, folder: Path) -> None:
    """Run the commands of a page in a folder; each ends well and prints what the page shows."""
    settings = environment()
    settings |= {"PATH": f"{Path(sys.executable).parent}:{settings['PATH']}", "COLUMNS": "80"}
    for command, shown in steps(page):
        finished = subprocess.run(
            ["bash", "-e", "-c", command], cwd=folder, env=settings, capture_output=True, text=True
        )
        assert finished.returncode == 0, f"{command}\n{finished.stderr}"
        assert agrees(finished.stdout, shown), (
            f"{command}\nprinted\n{finished.stdout}\nand not\n{shown}"
        )
