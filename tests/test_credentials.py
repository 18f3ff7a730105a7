"""Passwords and keys in addresses: refused, repeated nowhere; errors, which workers pickle."""

import json
import pickle
from pathlib import Path

import pytest

from papa.credentials import holds_credentials, without_credentials
from papa.errors import (
    ArtifactError,
    DamagedError,
    HubUnreachableError,
    NumbersError,
    PapaError,
    Problem,
    SpecError,
)
from papa.files import cache_folder
from papa.flows.check import cluster_address
from papa.spec.file import load_study
from papa.storage.store import Store
from papa.tasks.aggregate import command_line

SECRET = "pa55w/rd+of=mine"
WITH = [
    f"ftp://user:{SECRET}@host/x.csv",
    f"s3://AKIAIOSFODNN7EXAMPLE:{SECRET}@bucket/prefix",
    "https://pa55w@host/x",
    "https://host/x?X-Amz-Signature=pa55w",
    "https://host/x?a=1&access_token=pa55w",
    f"simplecache::s3://key:{SECRET}@bucket",
    f"postgresql+asyncpg://papa:{SECRET}@db:5432/x",
    f"ftp:/user:{SECRET}@host",
]
SECRETS: list[tuple[dict[str, object] | str, str]] = [
    (f"reference={WITH[0]}", "reference"),
    ({"encoders": ["https://pa55w@huggingface.co/a/b"]}, "encoders.0"),
    ({"execution": {"ray_address": f"ray://user:{SECRET}@host:10001"}}, "execution.ray_address"),
    ({f"s3://key:{SECRET}@bucket": 1}, "'"),
]


@pytest.mark.parametrize("text", WITH)
def test_a_secret_is_never_shown(text: str) -> None:
    assert holds_credentials(text)
    for error in (PapaError(f"'{text}' is wrong"), DamagedError(f"{text}/a", text)):
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301
        for written in (str(error), repr(error), str(Problem("here", error)), str(copied)):
            assert "pa55w" not in written
            assert "***" in written
    assert "pa55w" not in command_line(["/bin/papa", "run", text])


@pytest.mark.parametrize(
    "error",
    [
        HubUnreachableError("the encoder a/b", "no route"),
        DamagedError("the digest differs", "/store/artifacts/probe/0"),
        NumbersError("the output of layer 1, batch 2 of the train split", "use other weights"),
    ],
)
def test_an_error_is_the_same_after_its_way_from_a_worker(error: PapaError) -> None:
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(arrived), str(arrived)) == (type(error), str(error))
    assert vars(arrived) == vars(error)


def test_an_error_commands_no_terminal() -> None:
    assert str(PapaError("no file a\n\x1b[2J: give one")) == r"no file a\n\x1b[2J: give one"


def test_a_token_of_the_hub_is_known() -> None:
    assert without_credentials("no encoder hf_AbCdEfGhIjKlMnOpQrStUv") == "no encoder ***"


def test_long_texts_are_searched_in_linear_time() -> None:
    # Each would take hours if what is tried grew with the square of its length.
    for text in ("aa:/" * 50_000, "?token" * 40_000, "aa://a:" * 40_000, "a" * 250_000):
        assert not holds_credentials(text)


@pytest.mark.parametrize(("change", "key"), SECRETS)
def test_study_secrets_refused(tmp_path: Path, change: dict[str, object] | str, key: str) -> None:
    changes, overrides = ({}, [change]) if isinstance(change, str) else (change, [])
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps({"name": "s", "encoders": ["a/b"], "tasks": ["cola"]} | changes))
    with pytest.raises(SpecError, match=key) as raised:
        load_study(path, overrides)
    assert "pa55w" not in str(raised.value)


@pytest.mark.parametrize("address", [WITH[1], f"http://user:{SECRET}@host", "gs://b/p?token=pa55w"])
def test_a_store_with_a_secret_in_its_address_is_refused(address: str) -> None:
    before = sorted(cache_folder().rglob("*"))
    with pytest.raises(ArtifactError, match="AWS_PROFILE") as raised:
        Store(address)
    assert "pa55w" not in repr(raised.value)
    assert sorted(cache_folder().rglob("*")) == before


def test_a_cluster_with_a_secret_in_its_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"ray://me:{SECRET}@host:10001")
    with pytest.raises(SpecError, match="Ray"):
        cluster_address(None)
    assert cluster_address("host:6379") == "host:6379"
