"""A small disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.files import MEGABYTE


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
