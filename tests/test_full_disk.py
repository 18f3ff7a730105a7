"""A disk that is really full: a small file system in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from papa.errors import ArtifactError
from papa.probes.features import DiskSpaceError, reserved
from papa.storage.artifacts import is_complete, published

pytestmark = pytest.mark.server

MEGABYTE = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={4 * MEGABYTE}", "none", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def tensors(folder: Path, size: int) -> None:
    save_file({"a": torch.zeros(size // 4)}, folder / "a.safetensors")


def table(folder: Path, size: int) -> None:
    batch = pa.record_batch({"a": pa.array([0] * (size // 8))})
    with pa.OSFile(str(folder / "a.arrow"), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def text(folder: Path, size: int) -> None:
    (folder / "a.json").write_text("0" * size)


@pytest.mark.parametrize("write", [tensors, table, text])
def test_an_artifact_on_a_full_disk(write: Callable[[Path, int], None], disk: Path) -> None:
    with published(disk / "store" / "first", {}) as folder:
        write(folder, 2 * MEGABYTE)
    second = disk / "store" / "second"
    with (
        pytest.raises(ArtifactError, match=r"the disk under .*/disk/store is full: free some space and run again"),
        published(second, {}) as folder,
    ):
        write(folder, 3 * MEGABYTE)
    assert is_complete(disk / "store" / "first")
    assert [path.name for path in (disk / "store").iterdir()] == ["first"]
    with published(second, {}) as folder:
        write(folder, MEGABYTE)
    assert is_complete(second)


def test_features_on_a_full_disk(disk: Path) -> None:
    with pytest.raises(DiskSpaceError, match=r"has 0\.00 GB free, the features of one cell need 0\.02 GB"):
        reserved(disk / "values.bin", 20 * MEGABYTE)
    assert not list(disk.iterdir())
    with reserved(disk / "values.bin", 3 * MEGABYTE) as file:
        file.write(bytes(3 * MEGABYTE))


def test_features_where_the_space_goes_while_it_is_reserved(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may take the space between the look at it and the reservation."""
    monkeypatch.setattr("papa.probes.features.check_disk", lambda folder, needed: None)
    with pytest.raises(DiskSpaceError, match=r"refused \(No space left on device\)"):
        reserved(disk / "values.bin", 50 * MEGABYTE)
    assert not list(disk.iterdir())
