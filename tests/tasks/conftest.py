"""What tests of several steps read."""

from pathlib import Path

import pytest

from papa.storage.store import Store
from tests.tasks.copier import write_copier


@pytest.fixture(scope="session")
def copier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the copying decoder and its texts."""
    folder = tmp_path_factory.mktemp("copier")
    write_copier(folder)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store on this machine."""
    store = Store(tmp_path / "store")
    store.make()
    return store
