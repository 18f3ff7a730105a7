"""Files and folders appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.storage.atomic import scratch_beside, write_atomically


def test_a_file_is_replaced_whole_or_left(tmp_path: Path) -> None:
    for content in ("one", b"two"):
        write_atomically(tmp_path / "file", content)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "file", "three", new=True)
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "taken", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]
    assert (tmp_path / "file").read_text() == "two"


def test_new_files_also_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", refused)
    write_atomically(tmp_path / "file", "one", new=True)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "file", "two", new=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "one")]


def test_a_folder_that_is_not_renamed_is_gone(tmp_path: Path) -> None:
    with scratch_beside(tmp_path / "kept") as scratch:
        (scratch / "file").touch()
        scratch.rename(tmp_path / "kept")
    with pytest.raises(RuntimeError), scratch_beside(tmp_path / "lost"):
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
