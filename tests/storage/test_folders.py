"""Artifacts in folders."""

from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.files import scratch_beside, write_atomically
from papa.storage.artifacts import METADATA, metadata_below, remove, verified
from papa.storage.files import Files
from tests.storage.artifacts import data, names, publish
from tests.storage.laws import StoreLaws


class TestFolders(StoreLaws):
    @pytest.fixture
    def address(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
        return str(tmp_path / "store")

    def address_on(self, disk: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
        return str(disk / "store")

    def test_links_are_not_followed(self, address: str, tmp_path: Path) -> None:
        publish(str(tmp_path / "other"))
        publish(f"{address}/a")
        inner = data(f"{address}/a", "inner/linked")
        for link in ("linked", f"a/{inner}"):
            (Path(address) / link).symlink_to(tmp_path / "other")
        assert not any("linked" in name for name in names(address))
        for use in (
            lambda: Files(address).find("linked"),
            lambda: Files(address).read(f"linked/{METADATA}"),
            lambda: Files(address).write("linked/file", b""),
            lambda: publish(f"{address}/linked"),
        ):
            with pytest.raises(ArtifactError, match=rf"{address}/linked is a link"):
                use()
        (Path(address) / "linked").unlink()
        remove(f"{address}/a")
        assert names(address) == []
        assert verified(tmp_path / "other")

    def test_a_folder_may_have_any_name(self, tmp_path: Path) -> None:
        """Also one that fsspec would take for a pattern, or for a chain of URIs."""
        for name in ("a [v2]", "b*?", "c::d", "~e", "é"):
            address = str(tmp_path / name)
            publish(f"{address}/a")
            assert list(metadata_below(address)) == ["a"]
            assert verified(f"{address}/a")
            assert len(names(address)) == 2
            remove(address)
        assert names(str(tmp_path)) == []

    def test_a_folder_that_cannot_be_used_is_one_sentence(self, address: str) -> None:
        publish(address)
        store = Files(f"{verified(address)}/inner/file.txt")
        assert store.read("notes") is None
        with pytest.raises(ArtifactError, match=r"file\.txt"):
            store.write("notes", b"")
        with pytest.raises(ArtifactError, match="Is a directory"):
            Files(verified(address)).read("inner")
        assert verified(address)


def test_files_or_folders_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    for text in ("one", b"two"):
        write_atomically(tmp_path / "file", text)
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "taken", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]
    assert (tmp_path / "file").read_text() == "two"
    with scratch_beside(tmp_path / "kept") as scratch:
        scratch.rename(tmp_path / "kept")
    with pytest.raises(RuntimeError), scratch_beside(tmp_path / "lost"):
        raise RuntimeError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "kept", "taken"]
