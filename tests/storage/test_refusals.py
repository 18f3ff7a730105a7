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


Change = Callable[[S3Server], dict[str, str]]
REFUSALS: list[tuple[Change, str, str]] = [
    (lambda s3: s3.environment(("nobody", s3.owner[1])), "", r"\(InvalidAccessKeyId: .*in AWS_"),
    (lambda s3: s3.environment((s3.owner[0], "wrong")), "", r"used \(SignatureDoesNotMatch"),
    (S3Server.environment, "s3://no-such-bucket/x", "is not there .*: create its bucket"),
    (S3Server.environment, "gs://bucket/x", r"is no address of a store \(.*gcsfs.*: give a "),
    (S3Server.environment, "nonsense://bucket/x", "is no address of a store .*: give a folder"),
]


@pytest.mark.parametrize(("change", "address", "sentence"), REFUSALS)
def test_what_cannot_be_used_is_one_sentence(
    s3: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch,
    change: Change, address: str, sentence: str,
) -> None:  # fmt: skip
    once = {"mode": "standard", "total_max_attempts": 1}
    monkeypatch.setitem(_S3["config_kwargs"], "retries", once)
    change_keys(monkeypatch, change(s3))
    with pytest.raises(PapaError, match=sentence) as raised:
        Files(address or s3_place).write("file", b"")
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
        Files(s3_place).read("file")


def test_who_may_read_reads(s3: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(f"{s3_place}/a")
    change_keys(monkeypatch, s3.environment(s3.reader))
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
            Files(s3_place).read("file")
