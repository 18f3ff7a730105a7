"""A file that makes a real parser crash costs one process; one whose reader was killed is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.json
import pytest

from papa.errors import DataError
from papa.storage.cache import cache_folder
from papa.storage.crashes import guarded
from papa.workers import WorkerPool

DEEP = '{"a": ' + "[" * 400_000 + "]" * 400_000 + "}\n"
"""Arrow's parser recurses: without the limits of ``papa.corpora.limits`` it overflows its stack."""


def rows(path: Path, kill: bool = False) -> int:
    """Parse a file as it is, with no limit; with ``kill`` the first process to do so is killed meanwhile."""
    mark = path.with_suffix(".killed")
    if kill and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return pa.json.read_json(path).num_rows


def rows_on_a_worker(*, path: Path, progress: object) -> int:
    return guarded(rows, path, error=DataError)


def in_another_process(path: Path, kill: bool) -> int:
    program = (
        "import sys, pathlib\nfrom papa.errors import DataError\nfrom papa.storage.crashes import guarded\n"
        "from tests.storage.test_crashes import rows\n"
        f"guarded(rows, pathlib.Path({str(path)!r}), {kill}, error=DataError)\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    return tmp_path / "rows.jsonl"


def notes() -> list[Path]:
    return list((cache_folder() / "reading").glob("*"))


@pytest.mark.server
def test_who_crashed_is_not_read_again(file: Path) -> None:
    file.write_text(DEEP)
    assert in_another_process(file, kill=False) == -signal.SIGSEGV
    assert len(notes()) == 1
    for _ in range(2):
        with pytest.raises(DataError, match=f"{file} makes its parser crash \\(SIGSEGV, in a process of its own\\)"):
            guarded(rows, file, False, error=DataError)
    file.write_text('{"a": 1}\n')
    assert guarded(rows, file, False, error=DataError) == 1, "mended, it is another file"


@pytest.mark.server
def test_whose_reader_was_killed_is_read(file: Path) -> None:
    assert in_another_process(file, kill=True) == -signal.SIGKILL
    assert len(notes()) == 1
    assert guarded(rows, file, True, error=DataError) == 2
    assert notes() == []


def test_a_read_leaves_no_note(file: Path) -> None:
    assert guarded(rows, file, error=DataError) == 2
    file.write_text("{")
    with pytest.raises(pa.ArrowInvalid):
        guarded(rows, file, error=DataError)
    assert notes() == []


@pytest.mark.server
def test_a_crash_costs_a_worker_and_not_the_study(file: Path, tmp_path: Path) -> None:
    """One worker is lost; the call is repeated on another, which says what is wrong, and the pool goes on."""
    deep = tmp_path / "deep.jsonl"
    deep.write_text(DEEP)
    with WorkerPool(1, "cpu", tmp_path / "ray") as pool:
        with pytest.raises(DataError, match=f"{deep} makes its parser crash"):
            pool.run(rows_on_a_worker, arguments={"path": deep})
        assert pool.run(rows_on_a_worker, arguments={"path": file}) == 2
