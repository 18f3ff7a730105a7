"""The command line says the new name of a renamed option."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from papa.flows.cli import app


@pytest.mark.parametrize(
    ("line", "new_name"),
    [
        ("run --model embedded/all-MiniLM-L6-v2 --own texts.txt", "--data"),
        ("run --own=texts.txt", "--data"),
        ("export study --to folder --fraction 0.5", "--keep"),
        ("export study --to folder --keep 0.5 --constants zeros", "--substitute"),
    ],
)
def test_a_renamed_option_is_refused_with_its_new_name(line: str, new_name: str) -> None:
    finished = CliRunner().invoke(app, line.split())
    assert finished.exit_code == 2
    assert new_name in finished.output
