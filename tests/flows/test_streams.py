"""Where commands run: with standard streams closed, on a terminal that is not UTF-8."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import COMMAND, environment

pytestmark = pytest.mark.server


def papa(
    *arguments: str, closed: str = "", encoding: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with some of its standard streams closed."""
    more = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding} if encoding else {}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", COMMAND, *arguments],
        env=environment() | more,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_replaced(tiny: tuple[str, Path], encoding: str) -> None:
    study, store = tiny
    for command in (["plan", study], ["check", study], ["list"]):
        done = papa(*command, "--store", str(store), encoding=encoding)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
        assert done.stdout.decode(encoding)


@pytest.mark.parametrize("closed", ["0>&-", "1>&-", "2>&-", "0>&- 1>&- 2>&-"])
def test_closed_streams(tiny: tuple[str, Path], closed: str) -> None:
    study, store = tiny
    assert papa("plan", study, "--store", str(store), closed=closed).returncode == 0
