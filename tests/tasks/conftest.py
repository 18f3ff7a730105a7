"""An MLflow database as its first use leaves it: made once, copied for each test that is about what
comes after.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tasks.mlflow import connect
from tests.tasks.tracked import address_in


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlflow")
    connect(address_in(folder))
    return folder / "mlflow.db"


@pytest.fixture
def mlflow_database(empty_database: Path, tmp_path: Path) -> None:
    """A database in ``tmp_path`` in which nothing is logged yet."""
    shutil.copy(empty_database, tmp_path)
