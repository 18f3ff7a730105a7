"""Files and folders appear whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from papa.storage.atomic import MARK, aside, scratch_beside, write_atomically


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    for content in ("one", b"two"):
        write_atomically(tmp_path / "file", content)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "two")]


def test_a_file_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "inside").touch()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_folder_that_is_not_renamed_is_gone(tmp_path: Path) -> None:
    with scratch_beside(tmp_path / "new" / "kept") as scratch:
        (scratch / "file").touch()
        assert scratch.parent == tmp_path / "new"
        scratch.rename(tmp_path / "new" / "kept")
    for error in (None, RuntimeError):
        try:
            with scratch_beside(tmp_path / "new" / "lost") as scratch:
                (scratch / "file").touch()
                if error:
                    raise error
        except RuntimeError:
            assert error
    assert [path.relative_to(tmp_path / "new").as_posix() for path in tmp_path.rglob("*")][1:] == [
        "kept",
        "kept/file",
    ]


def test_names_aside_are_hidden_and_differ() -> None:
    names = {aside(Path("/folder/name")) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(rf"/folder/\.name\.{MARK}", str(name)) for name in names)
