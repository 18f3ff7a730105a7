"""What an S3-compatible server refuses, and a server that does not answer, are one sentence."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from papa.errors import ArtifactError, PapaError, TransientError
from papa.storage.artifacts import verify
from papa.storage.files import _S3, Files
from tests.integration.s3 import S3Server
from tests.storage.files import publish

pytestmark = pytest.mark.server


def change_keys(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """What clients find from here on in the environment."""
    from s3fs import S3FileSystem

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()


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
            r"cannot be used \(InvalidAccessKeyId: .*in AWS_ACCESS_KEY_ID and .* credentials that",
        ),
        (wrong_secret, None, r"cannot be used \(SignatureDoesNotMatch: "),
        (
            reader,
            None,
            r"cannot be used \(AccessDenied: .*credentials that may list, read, write and delete",
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
    once = {"mode": "standard", "total_max_attempts": 1}
    monkeypatch.setitem(_S3["config_kwargs"], "retries", once)
    change_keys(monkeypatch, change(s3))
    with pytest.raises(PapaError, match=sentence) as raised:
        Files(address or s3_place).check(write=True)
    assert "\n" not in str(raised.value)


def test_without_credentials(
    s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    change_keys(monkeypatch, {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"})
    with pytest.raises(
        ArtifactError, match=rf"{s3_place} cannot be used .*credentials.* in AWS_ACCESS_KEY_ID"
    ):
        Files(s3_place).check(write=False)


def test_who_may_read_reads(s3: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(f"{s3_place}/a")
    change_keys(monkeypatch, reader(s3))
    Files(s3_place).check(write=False)
    assert verify(f"{s3_place}/a")
    with pytest.raises(ArtifactError, match="AccessDenied"):
        publish(f"{s3_place}/b")


def test_a_server_that_never_answers_is_said(
    s3_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("papa.storage.files._ANSWER_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        change_keys(monkeypatch, {"AWS_ENDPOINT_URL": address})
        with pytest.raises(TransientError, match=r"cannot be reached \(no answer\)"):
            Files(s3_place).check(write=True)
