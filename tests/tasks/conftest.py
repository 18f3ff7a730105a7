"""What tests of several steps read."""

from pathlib import Path

import pytest

from tests.tasks.copier import write_copier


@pytest.fixture(scope="session")
def copier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the copying decoder and its texts."""
    folder = tmp_path_factory.mktemp("copier")
    write_copier(folder)
    return folder
