"""The stack, started once for all integration tests."""

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
def short_folder() -> Iterator[Path]:
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
def storage(short_folder: Path, database: of_stack.Postgres) -> Iterator[S3Server]:
    """The S3-compatible store, which both hosts reach, with the stack's buckets and keys."""
    of_stack.namespace()
    with s3_server(short_folder / "s3", HOST, "papa mlflow") as server:
        prepared = {"DATABASES": "mlflow prefect", "BUCKETS": "papa mlflow"}
        of_stack.prepare(database, {**prepared, **server.environment()})
        yield server


@pytest.fixture(scope="session")
def database(short_folder: Path) -> Iterator[of_stack.Postgres]:
    with of_stack.postgres(short_folder / "postgres", ["mlflow", "prefect"]) as service:
        yield service


@pytest.fixture(scope="session")
def prefect(short_folder: Path, database: of_stack.Postgres) -> Iterator[Service]:
    with of_stack.prefect_server(short_folder / "prefect", database) as service:
        yield service


@pytest.fixture(scope="session")
def tracking(
    short_folder: Path, database: of_stack.Postgres, storage: S3Server
) -> Iterator[Service]:
    keys = {**storage.of("mlflow"), "PGPASSWORD": "mlflow" + database.password}
    files = "s3://mlflow", keys
    with of_stack.mlflow_server(short_folder / "mlflow", database.url("mlflow"), *files) as service:
        yield service


@pytest.fixture(scope="session")
def site(short_folder: Path, storage: S3Server) -> dict[str, str]:
    site_settings = {"PAPA_STORE": "s3://papa/store", "PAPA_CACHE": str(short_folder / "cache")}
    return {**storage.of("papa"), **site_settings}


@pytest.fixture(scope="session")
def head(short_folder: Path, site: dict[str, str]) -> Iterator[Service]:
    with of_stack.ray_head(short_folder / "head", environment=site) as service:
        yield service


@pytest.fixture
def node(
    short_folder: Path, elsewhere: Path, site: dict[str, str], head: Service
) -> Iterator[Service]:
    environment = {**site, "PAPA_CACHE": str(elsewhere / "cache")}
    with of_stack.ray_node(
        elsewhere / "node", head, environment=environment, hidden=[short_folder]
    ) as service:
        yield service
