"""Where commands run: without standard input, on a terminal that is not UTF-8, behind a proxy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.flows.conftest import COMMAND, TINY, environment, known, write_study

pytestmark = pytest.mark.server

STUDY = TINY | {"orders": ["first_to_last"], "constants": ["identity"], "fractions": [1, 0]}


def papa(
    *arguments: str, more: Mapping[str, str], closed: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with some of its standard streams closed."""
    close = " ".join(f"{number}>&-" for number in closed)
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {close}', "sh", sys.executable, "-c", COMMAND, *arguments],
        env=environment() | dict(more),
        capture_output=True,
        check=False,
    )


@pytest.fixture
def study(shallow: str, tmp_path: Path) -> str:
    return known(write_study(tmp_path, STUDY | {"encoders": [shallow]}))


def test_a_study_without_input_in_latin_1_behind_a_proxy_that_is_none(
    study: str, tmp_path: Path
) -> None:
    """Whatever goes to this machine itself goes through no proxy: there is none at that port."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy")
        more = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
        store = tmp_path / "store"
        run = papa(
            *("run", study, "--store", str(store)),
            more={**more, **dict.fromkeys(names, proxy)},
            closed=(0,),
        )
    assert run.returncode == 0, run.stderr
    assert "Drop" in run.stdout.decode("latin-1")
    report = (store / "studies" / "small" / "report.html").read_text(encoding="utf-8")
    assert "·" in report or "±" in report
    assert (store / "studies" / "small" / "scores.png").stat().st_size > 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_lacks_is_replaced(
    tiny: tuple[str, Path], tmp_path: Path, encoding: str
) -> None:
    study, store = tiny
    (renamed := tmp_path / "λ.yaml").write_text(Path(study).read_text())
    more = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding}
    for command in (["plan", study], ["check", os.fspath(renamed)], ["list"], ["tasks"]):
        done = (
            papa(*command, "--store", str(store), more=more)
            if command != ["tasks"]
            else papa(*command, more=more)
        )
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
        assert done.stdout.decode(encoding)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams(tiny: tuple[str, Path], closed: tuple[int, ...]) -> None:
    study, store = tiny
    assert papa("plan", study, "--store", str(store), more={}, closed=closed).returncode == 0
