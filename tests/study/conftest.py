"""What several files need: a store in a folder and one on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.storage.store import Store


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Store(tmp_path / "store")
    return Store(request.getfixturevalue("s3_place"))
