"""Artifacts on a real S3-compatible server (``tests/integration/s3.py`` starts SeaweedFS on
loopback).
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from papa.storage.artifacts import ArtifactReference, reference
from papa.storage.cache import copies_of
from tests.flows.processes import PATIENCE_SECONDS
from tests.storage.files import publish
from tests.storage.uri_laws import UriLaws


def _fetch(found: ArtifactReference, go: Any, results: Any) -> None:
    go.wait()
    folder = found.folder
    results.put((folder / "inner" / "file.txt").read_text())


@pytest.mark.server
class TestS3(UriLaws):
    @pytest.fixture
    def place(self, s3_place: str) -> str:
        return s3_place

    def test_processes_of_one_machine_fetch_once(self, place: str) -> None:
        publish(f"{place}/a", "x" * 2_000_000)
        context = multiprocessing.get_context("spawn")
        go, results = context.Event(), context.Queue()
        found = reference(f"{place}/a")
        processes = [context.Process(target=_fetch, args=(found, go, results)) for _ in range(3)]
        for process in processes:
            process.start()
        go.set()
        assert [len(results.get(timeout=PATIENCE_SECONDS)) for _ in processes] == [2_000_000] * 3
        for process in processes:
            process.join(PATIENCE_SECONDS)
        assert [path.name for path in copies_of(found.path).iterdir() if path.is_dir()] == [
            found.digest
        ]
