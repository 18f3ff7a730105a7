"""What holds of artifacts wherever they lie: written once, inherited by a class of tests for each
kind of store.
"""

from __future__ import annotations

import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from papa.errors import ArtifactError, TransientError
from papa.storage.artifacts import (
    fetched,
    is_complete,
    metadata_below,
    opened,
    published,
    read_metadata,
    reference,
    remove,
    verify,
)
from papa.storage.files import Files
from papa.storage.metadata import METADATA
from tests.storage.files import MEGABYTE, drop, in_cache, names, publish, put, table, tensors


def data(address: str, name: str) -> str:
    """Where below its address a published artifact's file lies."""
    return f"{read_metadata(address)['digest']}/{name}"


def content(address: str) -> str:
    return (fetched(address) / "inner" / "file.txt").read_text()


def open_it(address: str, *needed: str) -> None:
    with opened(address, *needed):
        pass


_remove = Files.remove


def killed(files: Files, name: str = "") -> None:
    """Whoever removes something is killed after the first step."""
    _remove(files, name)
    raise KeyboardInterrupt


class StoreLaws:
    """A kind of store gives the fixture ``place``."""

    @pytest.fixture
    def place(self) -> str:
        """An address with nothing below it; the cache is this test's own."""
        raise NotImplementedError

    @abstractmethod
    def place_on(self, disk: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> str:
        """An address whose artifacts are written on this disk first."""

    def test_an_artifact_is_published_whole_with_digests(self, place: str) -> None:
        assert not is_complete(f"{place}/a")
        publish(f"{place}/a")
        assert verify(f"{place}/a")["stage"] == "test"
        assert list(read_metadata(f"{place}/a")["files"]) == ["inner/file.txt"]
        assert names(place) == sorted(
            [f"a/{data(f'{place}/a', 'inner/file.txt')}", f"a/{METADATA}"]
        )
        found = reference(f"{place}/a")
        assert (found.folder / "inner" / "file.txt").read_text() == "data"
        assert verify(found.folder, "inner/file.txt") == read_metadata(f"{place}/a")

    def test_an_error_leaves_nothing(self, place: str) -> None:
        with suppress(RuntimeError), published(f"{place}/a", {}) as scratch:
            (scratch / "file.txt").write_text("half")
            assert not is_complete(f"{place}/a")
            assert metadata_below(place) == {}
            raise RuntimeError
        assert names(place) == []
        assert not scratch.exists()
        assert not in_cache()

    def test_the_first_to_publish_stays_and_the_other_leaves_nothing(self, place: str) -> None:
        with published(f"{place}/a", {"stage": "late"}) as scratch:
            (scratch / "file.txt").write_text("late")
            publish(f"{place}/a", "early")
        assert names(f"{place}/a") == sorted([data(f"{place}/a", "inner/file.txt"), METADATA])
        assert content(f"{place}/a") == "early"
        assert not scratch.exists()

    def test_of_many_writers_one_wins_and_nothing_mixes(self, place: str) -> None:
        def write(number: int) -> None:
            with published(f"{place}/a", {"writer": number}) as scratch:
                for name in ("one", "two", "three"):
                    (scratch / name).write_text(f"{number}" * 1000)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(write, range(8)))
        winner = read_metadata(f"{place}/a")["writer"]
        folder = fetched(f"{place}/a")
        assert {(folder / name).read_text() for name in ("one", "two", "three")} == {
            f"{winner}" * 1000
        }
        assert len(names(place)) == 4, "the others withdrew their data"

    def test_data_without_metadata_are_no_artifact(self, place: str) -> None:
        """Nor a hindrance: their writer was killed."""
        put(f"{place}/a", "0123/inner/file.txt", b"half")
        assert not is_complete(f"{place}/a")
        assert metadata_below(place) == {}
        for read in (read_metadata, reference, verify, open_it):
            with pytest.raises(
                ArtifactError, match=rf"{place}/a holds no complete artifact .*run again"
            ):
                read(f"{place}/a")
        publish(f"{place}/a")
        assert content(f"{place}/a") == "data"

    def test_damage_is_found_by_who_reads(self, place: str) -> None:
        publish(f"{place}/a")
        file = data(f"{place}/a", "inner/file.txt")
        again = rf".*delete {place}/a and run again"
        put(f"{place}/a", file, b"dat4")
        self.is_refused(f"{place}/a", rf"{place}/a/inner/file.txt is damaged {again}")
        drop(f"{place}/a", file)
        self.is_refused(f"{place}/a", rf"{place}/a.* is missing{again}")

    def is_refused(self, address: str, sentence: str) -> None:
        for read in (verify, open_it):
            with pytest.raises(ArtifactError, match=sentence):
                read(address)

    def test_a_file_that_no_digest_covers_is_not_read(self, place: str) -> None:
        publish(f"{place}/a")
        put(f"{place}/a", data(f"{place}/a", "scores.json"), b"{}")
        assert verify(f"{place}/a", "inner/file.txt")
        for read in (verify, open_it):
            with pytest.raises(ArtifactError, match=rf"{METADATA} names no scores.json: delete"):
                read(f"{place}/a", "scores.json")

    def test_metadata_of_many(self, place: str) -> None:
        for name in ("b", "a"):
            publish(f"{place}/stage/{name}")
        publish(f"{place}/stage/deeper/c")
        publish(f"{place}/stage/.a.1.0123abcd")
        put(f"{place}/stage/damaged", METADATA, b"{")
        found = metadata_below(f"{place}/stage")
        assert {name: found[name]["stage"] for name in found} == {"a": "test", "b": "test"}
        assert metadata_below(f"{place}/none") == {}

    def test_made_again_meanwhile_is_said(self, place: str) -> None:
        publish(f"{place}/a", "one")
        found = reference(f"{place}/a")
        remove(f"{place}/a")
        publish(f"{place}/a", "two")
        with pytest.raises(ArtifactError, match="made again meanwhile"):
            _ = found.folder

    def test_removed_is_gone(self, place: str) -> None:
        for name in ("a", "ab", "group/c"):
            publish(f"{place}/{name}")
            fetched(f"{place}/{name}")
        for name in ("a", "a", "group"):
            remove(f"{place}/{name}")
        assert {name.partition("/")[0] for name in names(place)} == {"ab"}
        publish(f"{place}/a", "again")
        assert content(f"{place}/a") == "again"

    def test_who_is_killed_removing_leaves_no_part_of_an_artifact(
        self, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(f"{place}/a")
        publish(f"{place}/a")
        with monkeypatch.context() as patch:
            patch.setattr(Files, "remove", killed)
            with pytest.raises(KeyboardInterrupt):
                remove(f"{place}/a")
        assert names(place), "its data are left"
        assert not is_complete(f"{place}/a")
        assert metadata_below(place) == {}
        publish(f"{place}/a", "again")
        assert content(f"{place}/a") == "again"

    def test_small_files_are_read_and_written(self, place: str) -> None:
        store = Files(place)
        assert store.read("notes") is None
        for written in (b"one", b"three"):
            store.write("notes", written)
            assert store.read("notes") == written
        assert not store.write("notes", b"four", new=True)
        assert store.read("notes") == b"three"
        assert names(place) == ["notes"], "nothing that it was written to first is left"
        assert store.write("runs/one", b"1", new=True)
        assert store.read("runs/one") == b"1"
        for _ in range(2):
            store.remove("runs/one")
        assert names(place) == ["notes"]

    def test_files_are_listed_with_size_and_time(self, place: str) -> None:
        begun = time.time()
        for name in ("a/b/one", "a/two", "ab/three"):
            put(place, name, b"12345")
        found = {file.path: file for file in Files(place).find("a")}
        assert set(found) == {"b/one", "two"}
        assert {file.size for file in found.values()} == {5}
        # A store may keep whole seconds.
        assert all(begun - 1 <= file.modified <= time.time() + 1 for file in found.values())
        assert Files(place).find("none") == Files(f"{place}/none").find() == []

    @pytest.mark.server
    @pytest.mark.parametrize("write", [tensors, table])
    def test_an_artifact_on_a_full_disk(
        self,
        write: Callable[[Path, int], None],
        disk: Path,
        place: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        place = self.place_on(disk, place, monkeypatch)
        with published(f"{place}/first", {}) as folder:
            write(folder, 2 * MEGABYTE)
        before = names(place)
        sentence = rf"the disk under {disk}/.* is full: free some space and run again"
        with (
            pytest.raises(ArtifactError, match=sentence),
            published(f"{place}/second", {}) as folder,
        ):
            write(folder, 5 * MEGABYTE)
        assert is_complete(f"{place}/first")
        assert names(place) == before
        assert not folder.exists()
        with published(f"{place}/second", {}) as folder:
            write(folder, MEGABYTE)
        assert is_complete(f"{place}/second")

    @pytest.mark.server
    def test_an_artifact_on_a_read_only_disk(
        self, disk: Path, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = self.place_on(disk, place, monkeypatch)
        publish(f"{place}/first")
        before = names(place)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        sentence = "is read-only: make it writable and run again, what is finished stays"
        try:
            with pytest.raises(TransientError, match=sentence):
                publish(f"{place}/second")
        finally:
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert names(place) == before
        publish(f"{place}/second")
