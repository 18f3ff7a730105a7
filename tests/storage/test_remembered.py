"""What is remembered of files: found again by its whole key, and never taken for a file that
changed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from papa.storage import remembered
from papa.storage.metadata import sha256_of_file
from papa.storage.remembered import digest_by_status, recall, remember, remembered_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read whole."""
    seen: list[Path] = []

    def read(path: Path) -> str:
        seen.append(path)
        return sha256_of_file(path)

    monkeypatch.setattr(remembered, "sha256_of_file", read)
    return seen


@pytest.fixture
def old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old enough at once."""
    monkeypatch.setattr(remembered, "_OLD_ENOUGH_NS", -(10**18))


def test_what_is_remembered_is_found_by_its_whole_key() -> None:
    remember({"check": "a", "of": 1}, {"layers": 6})
    assert recall({"check": "a", "of": 1}) == {"layers": 6}
    assert recall({"check": "a", "of": 2}) is None
    assert recall({"check": "a"}) is None


def test_a_damaged_memory_is_none() -> None:
    remember({"of": 1}, "found")
    (file,) = remembered_folder().iterdir()
    file.write_bytes(b"\xff")
    assert recall({"of": 1}) is None


def test_a_cache_that_cannot_be_written_remembers_nothing(cache: Path) -> None:
    cache.touch()
    remember({"of": 1}, "found")
    assert recall({"of": 1}) is None


def test_a_file_is_read_once(tmp_path: Path, reads: list[Path], old_enough: None) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    assert {digest_by_status(file) for _ in range(3)} == {sha256_of_file(file)}
    assert reads == [file]


def test_a_file_of_the_same_size_and_time_is_read_again(
    tmp_path: Path, reads: list[Path], old_enough: None
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    before = file.stat()
    first = digest_by_status(file)
    # The kernel's clock ticks between the two contents, as it does between any two of an old
    # file's.
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_bytes(b"other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert digest_by_status(file) == sha256_of_file(file) != first
    assert len(reads) == 2


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path: Path, reads: list[Path]) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    ahead = time.time_ns() + 10**12
    os.utime(file, ns=(ahead, ahead))
    digest_by_status(file)
    assert digest_by_status(file) == sha256_of_file(file)
    assert len(reads) == 2
    assert not remembered_folder().exists()
