"""Each service of the stack: what its role and its key reach, and that it ends with any process."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import psycopg2
import pytest
from s3fs import S3FileSystem

from flows.server import free_port
from tests.flows.processes import PATIENCE_SECONDS, listening
from tests.integration.s3 import S3Server, s3_server
from tests.integration.service import SCRIPTS, Service, run, started, wait_ready
from tests.integration.services import (
    Postgres, mlflow_server, postgres, prefect_server, prefect_worker, ray_head, ray_node,
)  # fmt: skip


def test_a_role_reaches_its_own_database_alone(database: Postgres) -> None:
    for role, other in (("mlflow", "prefect"), ("prefect", "mlflow")):
        login = {"user": role, "password": role + database.password}
        psycopg2.connect(database.url(role, role), **login).close()
        with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
            psycopg2.connect(database.url(other, role), **login)


def test_a_key_opens_its_own_bucket_alone(storage: S3Server) -> None:
    for own, other in (("papa", "mlflow"), ("mlflow", "papa")):
        storage.files.pipe(f"{other}/theirs", b"secret")
        how = {"endpoint_url": storage.endpoint, "use_listings_cache": False}
        files = S3FileSystem(key=own, secret=storage.of(own)["AWS_SECRET_ACCESS_KEY"], **how)
        files.pipe(f"{own}/mine", b"mine")
        assert (files.cat(f"{own}/mine"), f"{own}/mine" in files.ls(own)) == (b"mine", True)
        files.rm(f"{own}/mine")
        for refused in (
            lambda: files.cat(f"{other}/theirs"),
            lambda: files.ls(other),
            lambda: files.pipe(f"{other}/theirs", b"mine"),
            lambda: files.rm_file(f"{other}/theirs"),
            lambda: files.mkdir("a-new-one"),
        ):
            with pytest.raises(PermissionError):
                refused()
        assert storage.files.cat(f"{other}/theirs") == b"secret"
        storage.files.rm(f"{other}/theirs")
