"""A backup of the stack's databases and buckets, restored into a new stack."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from tests.integration import services
from tests.integration.service import ROOT, S3Server, run, s3_server


@dataclass(frozen=True)
class Stack:
    """A PostgreSQL server with the stack's databases, and a storage server with its buckets."""

    database: services.Postgres
    storage: S3Server

    @property
    def settings(self) -> dict[str, str]:
        """What ``infra/backup.sh`` and ``infra/restore.sh`` read."""
        address = {"POSTGRES": "", "PGHOST": "127.0.0.1", "PGPORT": str(self.database.port)}
        keys = {**self.storage.environment(), "PGPASSWORD": self.database.password}
        return {**address, **keys}

    @contextmanager
    def mlflow(self, folder: Path) -> Iterator[dict[str, str]]:
        """Run MLflow's server; yield what its clients need."""
        keys = {**self.storage.of("mlflow"), "PGPASSWORD": "mlflow" + self.database.password}
        backend = self.database.url("mlflow")
        with services.mlflow_server(folder, backend, "s3://mlflow", keys) as server:
            yield server.environment


@contextmanager
def new_stack(folder: Path) -> Iterator[Stack]:
    with (
        services.postgres(folder / "postgres", ["mlflow", "prefect"]) as database,
        s3_server(folder / "s3", buckets="papa mlflow") as storage,
    ):
        names = {"DATABASES": "mlflow prefect", "BUCKETS": "papa mlflow"}
        services.prepare(database, {**names, **storage.environment()})
        yield Stack(database, storage)


LOG = """
import mlflow
mlflow.set_experiment("study")
with mlflow.start_run(run_name="cell"):
    mlflow.log_metric("score", 0.5)
    mlflow.log_text("constant matrices", "average.txt")
"""
READ = """
import mlflow
(run,) = mlflow.search_runs(experiment_names=["study"], output_format="list")
print(run.data.metrics["score"], mlflow.artifacts.load_text(f"{run.info.artifact_uri}/average.txt"))
"""


def python(code: str, environment: Mapping[str, str]) -> str:
    """Run code in a process of its own: MLflow keeps the address of its first server."""
    return run(["python", "-c", code], environment)


@pytest.fixture(scope="module")
def backup(short_folder: Path) -> tuple[Path, dict[str, str]]:
    """A backup of a stack that is gone, and the login to its MLflow."""
    folder = short_folder / "backup"
    with new_stack(short_folder / "old") as old:
        with old.mlflow(short_folder / "old-mlflow") as login:
            python(LOG, login)
        old.storage.files.pipe("papa/store/a", b"an artifact")
        run([ROOT / "infra" / "backup.sh", folder], old.settings)
    return folder, login


def test_a_backup_is_restored(short_folder: Path, backup: tuple[Path, dict[str, str]]) -> None:
    folder, login = backup
    with new_stack(short_folder / "new") as new:
        new.storage.files.pipe("papa/store/younger", b"not in the backup")
        run([ROOT / "infra" / "restore.sh", folder], new.settings)
        assert new.storage.files.find("papa") == ["papa/store/a"]
        with new.mlflow(short_folder / "new-mlflow") as address:
            # The users of the backup are restored, too.
            known = {**login, "MLFLOW_TRACKING_URI": address["MLFLOW_TRACKING_URI"]}
            assert python(READ, known).endswith("0.5 constant matrices\n")


def test_a_used_database_is_kept(short_folder: Path, backup: tuple[Path, dict[str, str]]) -> None:
    folder, _ = backup
    with new_stack(short_folder / "used") as used:
        password = "mlflow" + used.database.password
        with psycopg2.connect(used.database.url("mlflow"), user="mlflow", password=password):
            used.storage.files.pipe("papa/store/younger", b"kept")
            with pytest.raises(AssertionError, match="mlflow"):
                run([ROOT / "infra" / "restore.sh", folder], used.settings)
            assert used.storage.files.find("papa") == ["papa/store/younger"]
