"""The laws of artifacts behind a URI on fsspec's filesystem in this process: no server
is needed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.storage.uri_laws import UriLaws


class TestMemory(UriLaws):
    # It looks whether a file is there and then writes it: of writers in threads two may win, where
    # S3 lets one.
    test_of_many_writers_one_wins_and_nothing_mixes = None

    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
        yield f"memory://{uuid.uuid4().hex[:12]}"
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
