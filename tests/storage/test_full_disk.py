"""Features on a disk that is really full; artifacts on one: ``tests/storage/laws.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.probes.features import DiskSpaceError, reserved
from tests.storage.files import MEGABYTE

pytestmark = pytest.mark.server


def test_features_on_a_full_disk(disk: Path) -> None:
    with pytest.raises(
        DiskSpaceError, match=r"has 0\.00 GB free, the features of one cell need 0\.02 GB"
    ):
        reserved(disk / "values.bin", 20 * MEGABYTE)
    assert not list(disk.iterdir())
    with reserved(disk / "values.bin", 3 * MEGABYTE) as file:
        file.write(bytes(3 * MEGABYTE))
