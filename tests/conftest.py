"""What several test folders need: the shared data and the embedded encoder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.s3 import S3Server, s3_server

SHARED = (Path(__file__).resolve().parents[2] / "shared").resolve()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real corpora and the golden tensors, beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"real corpora and golden tensors are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2 with its trained weights."""
    from papa.encoders.encoder import load_encoder
    from papa.encoders.reference import EMBEDDED, resolve_encoder
    from papa.spec import EncoderSpec

    return load_encoder(resolve_encoder(EncoderSpec(name=EMBEDDED)))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3-compatible server on loopback, with the bucket ``papa``."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket("papa")
        yield server


@pytest.fixture
def s3_place(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address on the server with nothing below it; this process has the owner's keys and a cache of its own."""
    from s3fs import S3FileSystem

    for variable, value in {**s3.environment(), "PAPA_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(variable, value)
    S3FileSystem.clear_instance_cache()
    return f"s3://papa/{uuid.uuid4().hex[:12]}"
