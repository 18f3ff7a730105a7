"""What holds of artifacts behind every URI: they are fetched into the machine's cache."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.artifacts import fetched, reference, remove, verify
from papa.storage.cache import copies_of
from tests.storage.files import drop, publish, put
from tests.storage.hostile import HostileLaws, document
from tests.storage.laws import content


class UriLaws(HostileLaws):
    """A kind of store behind a URI gives the fixture ``place``."""

    def place_on(self, disk: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PAPA_CACHE", str(disk / "cache"))
        return place

    def plant(self, address: str, name: str, content: bytes) -> None:
        """Data lie where a reader would ask for them, and a reader writes what it fetches."""
        # SeaweedFS refuses some of these keys itself; others take them.
        with suppress(OSError):
            put(address, f"{json.loads(document(name, content))['digest']}/{name}", content)
        super().plant(address, name, content)

    def test_nothing_damaged_is_kept(self, place: str) -> None:
        publish(f"{place}/a")
        found = reference(f"{place}/a")
        put(f"{place}/a", f"{found.digest}/inner/file.txt", b"dat4")
        again = rf"delete {place}/a and run"
        with pytest.raises(ArtifactError, match=rf"inner/file.txt is damaged .*{again}"):
            _ = found.folder
        assert not any(path.is_dir() for path in copies_of(found.path).iterdir())
        drop(f"{place}/a", f"{found.digest}/inner/file.txt")
        with pytest.raises(ArtifactError, match=rf"a file under .* is missing\): {again}"):
            _ = found.folder

    def test_a_damaged_copy_is_found_and_goes_with_its_artifact(self, place: str) -> None:
        publish(f"{place}/a")
        (fetched(f"{place}/a") / "inner" / "file.txt").write_text("dat4")
        with pytest.raises(ArtifactError, match=r"inner/file.txt is damaged"):
            verify(f"{place}/a")
        remove(f"{place}/a")
        publish(f"{place}/a")
        assert content(f"{place}/a") == "data"

    def test_copies_go_with_what_is_removed(self, place: str) -> None:
        publish(f"{place}/a")
        fetched(f"{place}/a")
        assert copies_of(f"{place}/a").exists()
        remove(f"{place}/a")
        assert not copies_of(f"{place}/a").exists()
