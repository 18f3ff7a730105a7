"""What holds of artifacts behind every URI: they are fetched into the machine's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.artifacts import (
    borrowed,
    complete_below,
    fetched,
    read_metadata,
    reference,
    remove,
    verify,
)
from papa.storage.cache import copies_of
from papa.storage.filesystem import filesystem
from papa.storage.metadata import METADATA
from tests.storage.files import drop, publish, put
from tests.storage.laws import StoreLaws


class UriLaws(StoreLaws):
    """A kind of store behind a URI gives the fixture ``place``."""

    def data(self, address: str, name: str) -> str:
        return f"{read_metadata(address)['digest']}/{name}"

    def place_on(self, disk: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PAPA_CACHE", str(disk / "cache"))
        return place

    def kill_removals(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        files, _ = filesystem(place)
        remove_objects = files.rm

        def killed(path: str, recursive: bool) -> None:
            remove_objects(path, recursive=recursive)
            raise KeyboardInterrupt

        monkeypatch.setattr(files, "rm", killed)

    def test_a_copy_needs_no_store(
        self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(f"{place}/a")
        found = reference(f"{place}/a")
        folder = found.folder
        assert (folder / "inner" / "file.txt").read_text() == "data"
        with monkeypatch.context() as patch:
            patch.setenv("PAPA_CACHE", str(tmp_path / "another machine"))
            assert found.folder != folder
            assert (found.folder / "inner" / "file.txt").read_text() == "data"
        drop(f"{place}/a", METADATA)
        drop(f"{place}/a", f"{found.digest}/inner/file.txt")
        assert found.folder == folder
        with pytest.raises(ArtifactError, match="no complete artifact"):
            read_metadata(found.path)

    def test_what_a_killed_writer_left_is_no_hindrance(self, place: str) -> None:
        """Killed between the data and the metadata."""
        put(f"{place}/a", "0123/inner/file.txt", b"half")
        publish(f"{place}/a")
        assert complete_below(place) == ["a"]
        assert (fetched(f"{place}/a") / "inner" / "file.txt").read_text() == "data"

    def test_nothing_damaged_is_kept(self, place: str) -> None:
        publish(f"{place}/a")
        found = reference(f"{place}/a")
        put(f"{place}/a", f"{found.digest}/inner/file.txt", b"dat4")
        with pytest.raises(
            ArtifactError, match=rf"{place}/a/inner/file.txt is damaged .*delete {place}/a and run"
        ):
            _ = found.folder
        assert not any(path.is_dir() for path in copies_of(found.path).iterdir())
        drop(f"{place}/a", f"{found.digest}/inner/file.txt")
        with pytest.raises(
            ArtifactError, match=r"metadata.json is there, a file under .* is missing"
        ):
            _ = found.folder

    def test_a_damaged_copy_is_fetched_again(self, place: str) -> None:
        publish(f"{place}/a")
        copy = fetched(f"{place}/a")
        for damage in (
            lambda: (copy / "inner" / "file.txt").write_text("dat4"),
            (copy / "inner" / "file.txt").unlink,
            lambda: (copy / METADATA).write_text("{"),
            (copy / METADATA).unlink,
        ):
            damage()
            assert verify(f"{place}/a")
            assert (fetched(f"{place}/a") / "inner" / "file.txt").read_text() == "data"

    def test_made_again_meanwhile_is_said(self, place: str) -> None:
        publish(f"{place}/a", "one")
        found = reference(f"{place}/a")
        remove(f"{place}/a")
        publish(f"{place}/a", "two")
        with pytest.raises(ArtifactError, match="made again meanwhile"):
            _ = found.folder

    def test_copies_go_with_what_is_removed_or_borrowed(self, place: str) -> None:
        publish(f"{place}/a")
        with borrowed(f"{place}/a") as folder:
            assert folder.is_dir()
        assert not folder.exists()
        assert not copies_of(f"{place}/a").exists()
        fetched(f"{place}/a")
        assert copies_of(f"{place}/a").exists()
        remove(f"{place}/a")
        assert not copies_of(f"{place}/a").exists()
