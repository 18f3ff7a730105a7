"""The services of the stack as processes, by ``infra/services``: each yields a ``Service``."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from papa.flows.ports import free_port
from tests.flows.processes import answers
from tests.integration.__main__ import HOST, NAMESPACE, OTHER, OTHER_NAMESPACE
from tests.integration.service import SCRIPTS, Service, run, started, wait_ready

_DEBIAN = Path("/usr/lib/postgresql")


@dataclass
class Postgres(Service):
    password: str = ""
    port: int = 5432

    def url(self, database: str, driver: str = "postgresql") -> str:
        role = "papa" if database == "postgres" else database  # PGPASSWORD has its password.
        return f"{driver}://{role}@127.0.0.1:{self.port}/{database}"


@contextmanager
def postgres(folder: Path, databases: Sequence[str]) -> Iterator[Postgres]:
    """PostgreSQL from Debian's packages, with password authentication, on loopback."""
    initdb = _program("initdb")
    server = _program("postgres")
    user = "postgres" if os.geteuid() == 0 else None
    password = secrets.token_hex(16)
    port = free_port()
    data = folder / "data"
    written = folder / "password"
    folder.mkdir(parents=True)
    written.write_text(password)
    if user:
        shutil.chown(folder, user)
        shutil.chown(written, user)
    options = ("--username=papa", f"--pwfile={written}", "--auth=scram-sha-256", "--no-sync")
    command = [initdb, "--pgdata", data, *options]
    subprocess.run(command, check=True, capture_output=True, user=user, cwd=folder)
    words = f"-D {data} -p {port} -h 127.0.0.1 -k {folder} -F"
    command = [server, *words.split()]
    with started(command, folder, {}, user=user) as running:
        service = Postgres(running.process, running.log, password=password, port=port)

        def accepts() -> bool:
            with suppress(psycopg2.OperationalError):
                psycopg2.connect(service.url("postgres"), password=password).close()
                return True
            return False

        wait_ready(service, accepts)
        prepare(service, {"DATABASES": " ".join(databases), "BUCKETS": ""})
        yield service


def prepare(database: Postgres, environment: Mapping[str, str]) -> None:
    role_environment = {"DATABASE_URL": database.url("postgres"), "PGPASSWORD": database.password}
    for name in environment["DATABASES"].split():
        role_environment[f"{name.upper()}_DB_PASSWORD"] = name + database.password
    run([SCRIPTS / "prepare.py"], {**environment, **role_environment})


@contextmanager
def prefect_server(folder: Path, database: Postgres) -> Iterator[Service]:
    port = free_port()
    password = f"papa:{secrets.token_hex(16)}"
    environment = {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database.url("prefect", "postgresql+asyncpg"),
        "PGPASSWORD": "prefect" + database.password,
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
    }
    with started([SCRIPTS / "prefect-server.sh"], folder, environment) as service:
        address = f"http://127.0.0.1:{port}/api"
        service.environment = {"PREFECT_API_URL": address, "PREFECT_API_AUTH_STRING": password}
        wait_ready(service, lambda: answers(f"{address}/health"))
        yield service


@contextmanager
def prefect_worker(folder: Path, environment: Mapping[str, str]) -> Iterator[Service]:
    """A worker of the pool ``papa``; ``environment`` is what it and its studies need."""
    port = free_port()
    address = {"PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1"}
    worker_address = {**address, "PREFECT_WORKER_WEBSERVER_PORT": str(port)}
    with started(
        [SCRIPTS / "prefect-worker.sh"], folder, {**environment, **worker_address}
    ) as service:
        wait_ready(service, lambda: answers(f"http://127.0.0.1:{port}/health"))
        yield service


@contextmanager
def mlflow_server(
    folder: Path, backend: str, artifacts: str, environment: Mapping[str, str] | None = None
) -> Iterator[Service]:
    port = free_port()
    password = secrets.token_hex(16)
    server_settings = {
        "MLFLOW_BACKEND_STORE_URI": backend,
        "MLFLOW_ARTIFACTS_DESTINATION": artifacts,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16),
        "MLFLOW_AUTH_ADMIN_USERNAME": "papa",
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_HOST": "127.0.0.1",
        "MLFLOW_PORT": str(port),
        "MLFLOW_WORKERS": "1",
    }
    with started(
        [SCRIPTS / "mlflow.sh"], folder, {**(environment or {}), **server_settings}
    ) as service:
        address = f"http://127.0.0.1:{port}"
        service.environment = {
            "MLFLOW_TRACKING_URI": address,
            "MLFLOW_TRACKING_USERNAME": "papa",
            "MLFLOW_TRACKING_PASSWORD": password,
        }
        wait_ready(service, lambda: answers(f"{address}/health"))
        yield service


@contextmanager
def ray_head(
    folder: Path, cores: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """The head of a Ray cluster with token authentication, in this namespace."""
    namespace()
    token = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    port = str(free_port())
    head_settings = {"RAY_NODE_IP": HOST, "RAY_PORT": port, "RAY_INCLUDE_DASHBOARD": "false"}
    head_settings |= {**token, **_node(folder, cores)}
    with started(
        [SCRIPTS / "ray-head.sh"], folder, {**(environment or {}), **head_settings}
    ) as service:
        service.environment = {"RAY_ADDRESS": f"{HOST}:{port}", "RAY_AUTH_MODE": "token", **token}
        wait_ready(service, lambda: "Ray runtime started" in service.log.read_text())
        yield service


@contextmanager
def ray_node(
    folder: Path,
    head: Service,
    environment: Mapping[str, str] | None = None,
    hidden: Sequence[Path] = (),
) -> Iterator[Service]:
    """A node of a Ray cluster on the other host, which does not see ``hidden`` folders."""
    _, other_namespace = namespace()
    node_settings = {"RAY_NODE_IP": OTHER, **head.environment, **_node(folder, 1)}
    mounts = "".join(f"mount -t tmpfs none {hidden_folder}; " for hidden_folder in hidden)
    script = f"{mounts}exec {SCRIPTS / 'ray-node.sh'}"
    command = ["ip", "netns", "exec", other_namespace, "sh", "-ec", script]
    with started(command, folder, {**(environment or {}), **node_settings}) as service:
        wait_ready(service, lambda: "Ray runtime started" in service.log.read_text())
        yield service


def namespace() -> tuple[str, str]:
    if NAMESPACE not in os.environ:
        pytest.skip("Ray needs network namespaces: make test-integration, as root")
    return os.environ[NAMESPACE], os.environ[OTHER_NAMESPACE]


def _node(folder: Path, cores: int) -> dict[str, str]:
    return {
        "RAY_NUM_CPUS": str(cores),
        "RAY_NUM_GPUS": "0",
        "RAY_OBJECT_STORE_BYTES": str(256 * 2**20),
        "RAY_TEMP_DIR": str(folder / "ray"),
    }


def _program(name: str) -> str:
    candidates = [shutil.which(name), *map(str, sorted(_DEBIAN.glob(f"*/bin/{name}"))[::-1])]
    for path in filter(None, candidates):
        return path
    pytest.skip(f"PostgreSQL's {name} is not installed: apt-get install postgresql")
