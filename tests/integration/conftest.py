"""The stack, started once for all integration tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration import services as of_stack
from tests.integration.__main__ import HOST
from tests.integration.service import S3Server, Service, s3_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder of this host, with a short path for Ray's sockets, open to PostgreSQL's user."""
    with _short_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Path]:
    with _short_folder() as folder:
        yield folder


@contextmanager
def _short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="papa-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def storage(place: Path, database: of_stack.Postgres) -> Iterator[S3Server]:
    """The S3-compatible store, which both hosts reach, with the stack's buckets and keys."""
    of_stack.namespace()
    with s3_server(place / "s3", HOST, "papa mlflow") as server:
        again = {"DATABASES": "mlflow prefect", "BUCKETS": "papa mlflow"}
        of_stack.prepare(database, {**again, **server.environment()})
        yield server


@pytest.fixture(scope="session")
def database(place: Path) -> Iterator[of_stack.Postgres]:
    with of_stack.postgres(place / "postgres", ["mlflow", "prefect"]) as service:
        yield service


@pytest.fixture(scope="session")
def prefect(place: Path, database: of_stack.Postgres) -> Iterator[Service]:
    with of_stack.prefect_server(place / "prefect", database) as service:
        yield service


@pytest.fixture(scope="session")
def tracking(place: Path, database: of_stack.Postgres, storage: S3Server) -> Iterator[Service]:
    keys = {**storage.of("mlflow"), "PGPASSWORD": "mlflow" + database.password}
    files = "s3://mlflow", keys
    with of_stack.mlflow_server(place / "mlflow", database.url("mlflow"), *files) as service:
        yield service


@pytest.fixture(scope="session")
def site(place: Path, storage: S3Server) -> dict[str, str]:
    own = {"PAPA_STORE": "s3://papa/store", "PAPA_CACHE": str(place / "cache")}
    return {**storage.of("papa"), **own}


@pytest.fixture(scope="session")
def head(place: Path, site: dict[str, str]) -> Iterator[Service]:
    with of_stack.ray_head(place / "head", environment=site) as service:
        yield service


@pytest.fixture
def node(place: Path, elsewhere: Path, site: dict[str, str], head: Service) -> Iterator[Service]:
    own = {"environment": {**site, "PAPA_CACHE": str(elsewhere / "cache")}, "hidden": [place]}
    with of_stack.ray_node(elsewhere / "node", head, **own) as service:
        yield service
