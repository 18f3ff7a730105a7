"""What is remembered of files: found again by its whole key, and never taken for a file that
changed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from papa.storage import remembered
from papa.storage.artifacts import sha256_of_file
from papa.storage.remembered import digest_by_status, recall, remember, remembered_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_remembered_is_found_by_its_whole_key() -> None:
    remember({"check": "a", "of": 1}, {"layers": 6})
    assert recall({"check": "a", "of": 1}) == {"layers": 6}
    assert recall({"check": "a", "of": 2}) is recall({"check": "a"}) is None
    (file,) = remembered_folder().iterdir()
    file.write_bytes(b"\xff")
    assert recall({"check": "a", "of": 1}) is None, "it is damaged"


def test_a_cache_that_cannot_be_written_remembers_nothing(cache: Path) -> None:
    cache.touch()
    remember({"of": 1}, "found")
    assert recall({"of": 1}) is None


def test_a_file_is_read_once_and_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where size and time are what they were; one that has just changed is not remembered."""
    reads: list[Path] = []

    def read(path: Path) -> str:
        reads.append(path)
        return sha256_of_file(path)

    monkeypatch.setattr(remembered, "sha256_of_file", read)
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    ahead = time.time_ns() + 10**12
    os.utime(file, ns=(ahead, ahead))
    before, first = file.stat(), sha256_of_file(file)
    assert {digest_by_status(file) for _ in range(2)} == {first}
    assert len(reads) == 2
    monkeypatch.setattr(remembered, "_OLD_ENOUGH_NS", -(10**18))
    assert {digest_by_status(file) for _ in range(3)} == {first}
    assert len(reads) == 3
    # The kernel's clock ticks between the two contents, as it does between any two of an old
    # file's.
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_bytes(b"other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_by_status(file) == sha256_of_file(file) != first
    assert len(reads) == 4
