"""Each service of the stack: what its role and its key reach, and that it ends with any process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import grpc
import psutil
import psycopg2
import pytest

from papa.flows.ports import free_port
from tests.flows.processes import PATIENCE_SECONDS, descendants, listening, status, wait_until
from tests.integration import services as stack
from tests.integration.service import (
    ROOT,
    SCRIPTS,
    S3Server,
    Service,
    run,
    s3_server,
    started,
    wait_ready,
)


@pytest.mark.parametrize(("role", "other_role"), [("mlflow", "prefect"), ("prefect", "mlflow")])
def test_a_role_has_one_database(database: stack.Postgres, role: str, other_role: str) -> None:
    password = role + database.password
    psycopg2.connect(database.url(role), user=role, password=password).close()
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        psycopg2.connect(database.url(other_role), user=role, password=password)


@pytest.mark.parametrize(("key_owner", "other_owner"), [("papa", "mlflow"), ("mlflow", "papa")])
def test_a_key_opens_one_bucket(storage: S3Server, key_owner: str, other_owner: str) -> None:
    from s3fs import S3FileSystem

    mine = f"{key_owner}/of-{key_owner}"
    theirs = f"{other_owner}/of-{other_owner}"
    storage.files.pipe(theirs, b"theirs")
    files = S3FileSystem(
        key=key_owner,
        secret=key_owner + storage.owner[1],
        endpoint_url=storage.endpoint,
        use_listings_cache=False,
    )
    files.pipe(mine, b"mine")
    assert (files.cat(mine), mine in files.ls(key_owner)) == (b"mine", True)
    files.rm(mine)
    for refused in (
        lambda: files.cat(theirs),
        lambda: files.ls(other_owner),
        lambda: files.pipe(theirs, b"mine"),
        lambda: files.rm_file(theirs),
        lambda: files.mkdir("a-new-one"),
    ):
        with pytest.raises(PermissionError):
            refused()


def test_keys_lie_in_memory_alone(short_folder: Path) -> None:
    def with_key(folder: str) -> list[Path]:
        files = [path for path in Path(folder).glob("tmp.*") if path.is_file()]
        return [path for path in files if key in path.read_bytes()]

    with s3_server(short_folder / token_hex(3), buckets="papa") as server:
        key = server.owner[1].encode()
        server.make_bucket("papa")
        assert not with_key("/tmp")
        assert not with_key("/dev/shm")
        (path,) = Path(f"/proc/{server.process.pid}/fd").glob("3")
        assert str(path.readlink()).startswith("/dev/shm/")
        assert key in path.read_bytes(), "negative control"


INNER_CALLS = (
    "filer_pb.SeaweedFiler/GetFilerConfiguration",
    "filer_pb.SeaweedFiler/ListEntries",
    "master_pb.Seaweed/Statistics",
    "volume_server_pb.VolumeServer/VolumeServerStatus",
)


def test_the_inner_servers_of_s3_serve_nobody(short_folder: Path) -> None:
    folder = short_folder / token_hex(3)
    with s3_server(folder) as server:
        server.make_bucket("papa")
        server.files.pipe("papa/secret", b"the secret")
        ports = set().union(*listening([server.process.pid]).values())
        assert len(ports) > 7
        for port in ports:
            for path in ("buckets/papa/secret", "papa/secret", "buckets/", "dir/assign"):
                address = f"http://127.0.0.1:{port}/{path}"
                assert status(address) not in (200, 201, 204)
                assert status(address, body={}) not in (200, 201, 204)
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                for call in INNER_CALLS:
                    with pytest.raises(grpc.RpcError) as raised:
                        channel.unary_unary(f"/{call}")(b"", timeout=60)
                    codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED)
                    assert raised.value.code() in codes
        connections = psutil.Process(server.process.pid).net_connections("unix")
        sockets = [connection.laddr for connection in connections]
        for socket in (folder / "inner" / name for name in sockets if name):
            assert not socket.exists() or not socket.stat().st_mode & 0o077
        assert server.files.cat("papa/secret") == b"the secret"


def test_workers_wait_for_the_nodes_of_an_autoscaler(short_folder: Path) -> None:
    folder = short_folder / token_hex(3)
    code = "import sys; from tests.workers import parts; parts.join_later(sys.argv[1], 1)"
    with stack.ray_head(folder / "head", cores=0) as head:
        address = head.environment["RAY_ADDRESS"]
        environment = {**head.environment, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code, address]
        with started(command, folder / "driver", environment) as driver:
            wait_until(lambda: address in driver.log.read_text(), "it waits", driver.process)
            with stack.ray_node(folder / "node", head, environment=environment):
                assert driver.process.wait(PATIENCE_SECONDS) == 0, driver.log.read_text()
        assert int(driver.log.read_text().splitlines()[-1]) > 0


ON_LOOPBACK = {"RAY_NODE_IP": "127.0.0.1", "RAY_AUTH_TOKEN": "0" * 64}


@contextmanager
def head_on_loopback(folder: Path) -> Iterator[Service]:
    settings = {"RAY_NUM_CPUS": "1", "RAY_PORT": str(free_port())} | ON_LOOPBACK
    settings |= {"RAY_TEMP_DIR": str(folder / "ray"), "RAY_OBJECT_STORE_BYTES": str(2**27)}
    settings |= {"PYTHONPATH": str(ROOT)}  # For the work of the tests.
    with started([SCRIPTS / "ray-head.sh"], folder, settings) as service:
        wait_ready(service, lambda: "Ray runtime started" in service.log.read_text())
        service.environment = settings
        yield service


def test_a_ray_node_at_127_0_0_1_listens_nowhere_else(short_folder: Path) -> None:
    stack.namespace()
    # Without a way there Ray finds no other address anyhow.
    run(["ip", "route", "replace", "8.8.8.8", "dev", "veth0"], {})
    with head_on_loopback(short_folder / "alone") as head:
        assert sum(map(len, listening(head.processes).values())) > 5
    with pytest.raises(AssertionError, match=r"127\.0\.0\.1"):
        run([SCRIPTS / "ray-node.sh"], {"RAY_ADDRESS": "127.0.0.1:6379", **ON_LOOPBACK})


OTHERS: dict[str, Callable[[Path, Callable[[str], Any]], AbstractContextManager[Any]]] = {
    "s3": lambda folder, _: s3_server(folder),
    "mlflow": lambda folder, _: stack.mlflow_server(folder, f"sqlite:///{folder}.db", str(folder)),
    "prefect-server": lambda folder, service_of: stack.prefect_server(
        folder, service_of("database")
    ),
    "prefect-worker": lambda folder, service_of: stack.prefect_worker(
        folder, service_of("prefect").environment | service_of("head").environment
    ),
    "ray-head": lambda folder, _: head_on_loopback(folder),
    "ray-node": lambda folder, service_of: stack.ray_node(folder, service_of("head")),
}


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("s3", "weed"),
        ("mlflow", "uvicorn"),
        ("prefect-server", "prefect"),
        ("prefect-worker", "prefect worker"),
        ("prefect-worker", "raylet"),
        ("ray-head", "gcs_server"),
        ("ray-node", "ray::DashboardAgent"),
    ],
)
def test_a_service_ends_with_a_process_of_its_own(
    name: str, lost: str, short_folder: Path, request: pytest.FixtureRequest
) -> None:
    with OTHERS[name](short_folder / token_hex(3), request.getfixturevalue) as service:
        root = service.process.pid

        def pids_of_lost() -> list[int]:
            commands = descendants(root) or {root: lost}
            return [pid for pid, command in commands.items() if f"{lost} " in f"{command} "]

        wait_until(pids_of_lost, f"{lost} runs", service.process)
        psutil.Process(pids_of_lost()[0]).kill()
        service.process.wait(PATIENCE_SECONDS)
