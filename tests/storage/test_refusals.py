"""What an S3-compatible server refuses, and a server that does not answer, are one sentence."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from papa.errors import ArtifactError, PapaError, TransientError
from papa.storage.artifacts import store_at, verify
from tests.integration.s3 import S3Server
from tests.storage.files import publish

pytestmark = pytest.mark.server


def wrong_key(server: S3Server) -> dict[str, str]:
    return server.environment(("nobody", server.owner[1]))


def wrong_secret(server: S3Server) -> dict[str, str]:
    return server.environment((server.owner[0], "wrong"))


def reader(server: S3Server) -> dict[str, str]:
    return server.environment(server.reader)


def nobody_listens(server: S3Server) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("change", "address", "sentence"),
    [
        (
            wrong_key,
            None,
            r"refuses the credentials \(InvalidAccessKeyId\): check AWS_ACCESS_KEY_ID",
        ),
        (wrong_secret, None, r"refuses the credentials \(SignatureDoesNotMatch\): check"),
        (
            reader,
            None,
            r"refuses what these credentials ask \(Access Denied\): it takes the right to .* write",
        ),
        (
            nobody_listens,
            None,
            r"at http://127.0.0.1:1 cannot be reached .*: check AWS_ENDPOINT_URL",
        ),
        (S3Server.environment, "s3://no-such-bucket/x", "is not there .*: create its bucket"),
        (
            S3Server.environment,
            "gs://bucket/x",
            r"a package for 'gs://' is not installed \(.*gcsfs",
        ),
        (
            S3Server.environment,
            "nonsense://bucket/x",
            "is no address of a store .*: give a folder, or a URI",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    s3: S3Server,
    s3_place: str,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[S3Server], dict[str, str]],
    address: str | None,
    sentence: str,
) -> None:
    from s3fs import S3FileSystem

    for name, value in change(s3).items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    with pytest.raises(PapaError, match=sentence) as raised:
        store_at(address or s3_place).check(write=True)
    assert "\n" not in str(raised.value)


def test_without_credentials(
    s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(
        ArtifactError, match=f"no credentials for {s3_place}: set AWS_ACCESS_KEY_ID"
    ):
        store_at(s3_place).check(write=False)


def test_who_may_read_reads(s3: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    publish(f"{s3_place}/a")
    for name, value in reader(s3).items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    store_at(s3_place).check(write=False)
    assert verify(f"{s3_place}/a")
    with pytest.raises(ArtifactError, match="refuses what these credentials ask"):
        publish(f"{s3_place}/b")


def test_a_server_that_never_answers_is_said(
    s3_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3fs import S3FileSystem

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        S3FileSystem.clear_instance_cache()
        with pytest.raises(TransientError, match=r"no answer within 15 seconds"):
            store_at(s3_place).check(write=True)
