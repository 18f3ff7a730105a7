"""What counts as following the tutorial; ``test_site.py`` follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.tutorial import TUTORIAL, agrees, follow, steps


def test_what_counts_as_the_same_output() -> None:
    assert agrees("a\n| 36 |  0.751 ± 0.02 |\nz", "| 36 | 0.745 ± 0.033 |")
    assert agrees("(1.2 to 3.4 %)", "(-2.9 to 9.6 %)")
    assert agrees("report /tmp/x/report.html", "report …/report.html")
    assert not agrees("| 37 | 0.751 ± 0.02 |", "| 36 | 0.745 ± 0.033 |")
    assert not agrees("| 36 | nan |", "| 36 | 0.745 |")


def test_the_tutorial_shows_what_its_commands_print() -> None:
    found = steps(TUTORIAL.read_text())
    assert [command.split()[1] for command, _ in found if command.startswith("papa ")] == [
        "--version",
        "run",
        "list",
        "heads",
    ]
    assert all(shown for command, shown in found if not command.startswith("cat "))


@pytest.mark.server
def test_a_command_that_fails_or_prints_something_else_is_noticed(tmp_path: Path) -> None:
    follow("```shell\necho one\n```\n\n```text\none\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="and not"):
        follow("```shell\necho one\n```\n\n```text\ntwo\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="no-such-command"):
        follow("```shell\nno-such-command\n```\n", tmp_path)
