"""Artifacts are complete or absent, and know what they hold."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.artifacts import METADATA, is_complete, published, read_metadata, reference, verify


def publish(folder: Path, text: str = "data") -> None:
    with published(folder, {"stage": "test"}) as scratch:
        (scratch / "inner").mkdir()
        (scratch / "inner" / "file.txt").write_text(text)


def test_published_whole_with_digests(tmp_path: Path) -> None:
    publish(tmp_path / "a")
    assert is_complete(tmp_path / "a")
    assert verify(tmp_path / "a")["stage"] == "test"
    assert list(read_metadata(tmp_path / "a")["files"]) == ["inner/file.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with suppress(RuntimeError), published(tmp_path / "a", {}) as scratch:
        (scratch / "file.txt").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_the_first_to_publish_stays(tmp_path: Path) -> None:
    with published(tmp_path / "a", {}) as scratch:
        (scratch / "file.txt").write_text("late")
        publish(tmp_path / "a", "early")
    assert (tmp_path / "a" / "inner" / "file.txt").read_text() == "early"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    publish(tmp_path / "a", "one")
    publish(tmp_path / "b", "one")
    publish(tmp_path / "c", "two")
    assert reference(tmp_path / "a").digest == reference(tmp_path / "b").digest != reference(tmp_path / "c").digest


def test_damage_is_found(tmp_path: Path) -> None:
    publish(tmp_path / "a")
    file = tmp_path / "a" / "inner" / "file.txt"
    file.write_text("dat4")
    with pytest.raises(ArtifactError, match=r"file.txt is damaged .*delete .* and run again"):
        verify(tmp_path / "a")
    file.unlink()
    with pytest.raises(ArtifactError, match="is missing"):
        verify(tmp_path / "a")
    (tmp_path / "a" / METADATA).write_text("{")
    with pytest.raises(ArtifactError, match="not JSON"):
        verify(tmp_path / "a")
    (tmp_path / "a" / METADATA).unlink()
    assert not is_complete(tmp_path / "a")
    with pytest.raises(ArtifactError, match="no complete artifact"):
        reference(tmp_path / "a")


def test_metadata_is_readable_json(tmp_path: Path) -> None:
    publish(tmp_path / "a")
    assert json.loads((tmp_path / "a" / METADATA).read_text())["digest"]
