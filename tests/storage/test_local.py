"""Artifacts in folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.artifacts import (
    complete_below,
    is_complete,
    is_sound,
    read_metadata,
    remove,
    store_at,
    verify,
)
from papa.storage.metadata import METADATA
from papa.study.store import MARKER, is_marked
from tests.storage.files import names, publish
from tests.storage.hostile import HostileLaws


class TestLocalStore(HostileLaws):
    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
        return str(tmp_path / "store")

    def data(self, address: str, name: str) -> str:
        return name

    def place_on(self, disk: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> str:
        return str(disk / "store")

    def kill_removals(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("papa.storage.local.shutil.rmtree", killed)

    def test_links_are_listed_and_not_followed(self, place: str, tmp_path: Path) -> None:
        publish(str(tmp_path / "other"))
        publish(f"{place}/a")
        for link in ("linked", "a/inner/linked"):
            (Path(place) / link).symlink_to(tmp_path / "other")
        assert {"linked", "a/inner/linked"} < set(names(place))
        assert not any(name.startswith(("linked/", "a/inner/linked/")) for name in names(place))
        assert list(store_at(place).files("linked")) == []
        remove(f"{place}/linked")
        remove(f"{place}/a")
        assert names(place) == []
        assert verify(tmp_path / "other")

    @pytest.mark.parametrize("linked", ["inner", "inner/file.txt"])
    def test_a_link_leads_out_of_no_artifact(self, place: str, tmp_path: Path, linked: str) -> None:
        """Not even to the very same bytes."""
        publish(f"{place}/a")
        verify(f"{place}/a")
        (Path(place) / "a" / linked).rename(tmp_path / "outside")
        (Path(place) / "a" / linked).symlink_to(tmp_path / "outside")
        with pytest.raises(ArtifactError, match=r"inner/file\.txt is a link"):
            verify(f"{place}/a")

    def test_a_link_to_a_store_is_a_store(self, place: str, tmp_path: Path) -> None:
        publish(f"{place}/a")
        (tmp_path / "link").symlink_to(place)
        assert names(str(tmp_path / "link")) == names(place) != []

    def test_what_is_written_aside_is_no_artifact(self, place: str) -> None:
        publish(f"{place}/.a.1.0123abcd")
        publish(f"{place}/a")
        assert complete_below(place) == ["a"]

    def test_a_folder_that_cannot_be_used_is_one_sentence(self, place: str) -> None:
        publish(place)
        store = store_at(f"{place}/inner/file.txt")
        assert store.read("notes") is None
        for write in (lambda: store.write("notes", b""), lambda: store.touch("notes")):
            with pytest.raises(
                ArtifactError, match=r"cannot be written \(.*\): give another folder with --store"
            ):
                write()
        with pytest.raises(ArtifactError, match=r"inner cannot be read \(it is no file\)"):
            store_at(place).read("inner")
        assert verify(place)

    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
    def test_what_is_no_file_is_not_waited_for(
        self, place: str, make: Callable[[Path], object]
    ) -> None:
        publish(f"{place}/a")
        (Path(place) / "a" / METADATA).unlink()
        make(Path(place) / "a" / METADATA)
        for look in (is_complete, read_metadata, verify):
            with pytest.raises(
                ArtifactError,
                match=r"a/metadata\.json (cannot be read|is damaged) \((it is )?no file",
            ):
                look(f"{place}/a")
        assert not is_sound(f"{place}/a")
        make(Path(place) / MARKER)
        with pytest.raises(
            ArtifactError, match=r"papa-store\.json cannot be read \(it is no file\)"
        ):
            is_marked(place)
