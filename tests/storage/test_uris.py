"""Artifacts behind URIs: fsspec's memory, and a real S3-compatible server (SeaweedFS)."""

import multiprocessing
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from papa.errors import ArtifactError, PapaError, TransientError
from papa.storage.artifacts import ArtifactReference, verified
from papa.storage.files import _PATIENCE, Files
from tests.flows.processes import PATIENCE_SECONDS
from tests.integration.service import S3Server
from tests.storage.artifacts import DATA, content, data, publish, put, reference
from tests.storage.laws import StoreLaws

NO_KEYS = {"HOME": "/nowhere", "AWS_EC2_METADATA_DISABLED": "true"}


class UriLaws(StoreLaws):
    def address_on(self, disk: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PAPA_CACHE", str(disk / "cache"))
        return address

    def plant(self, address: str, name: str, content: bytes) -> None:
        """Data lie where a reader would ask for them, and a reader writes what it fetches."""
        # SeaweedFS refuses some of these keys itself; others take them.
        with suppress(PapaError):
            put(address, f"{DATA}/{name}", content)
        super().plant(address, name, content)

    def test_nothing_damaged_is_kept(self, address: str) -> None:
        publish(f"{address}/a")
        copy = verified(f"{address}/a")
        (copy / "inner" / "file.txt").write_text("dat4")
        with pytest.raises(ArtifactError, match=r"inner/file\.txt"):
            verified(f"{address}/a")
        assert content(f"{address}/a") == "data", "it was fetched again"
        shutil.rmtree(copy)
        put(f"{address}/a", data(f"{address}/a"), b"dat4")
        with pytest.raises(ArtifactError, match=r"inner/file\.txt"):
            verified(f"{address}/a")
        assert not copy.exists()


class TestMemory(UriLaws):
    # It looks whether a file is there and then writes it: of writers in threads two may win, where
    # S3 lets one.
    test_of_many_writers_exactly_one_wins = None

    @pytest.fixture
    def address(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
        yield f"memory://{uuid.uuid4().hex[:12]}"
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]


def _fetch(artifact: ArtifactReference, go: Any, results: Any) -> None:
    go.wait()
    results.put((verified(artifact) / "inner" / "file.txt").read_text())


@pytest.mark.server
class TestS3(UriLaws):
    @pytest.fixture
    def address(self, s3_place: str) -> str:
        return s3_place

    def test_processes_of_one_machine_fetch_once(self, address: str) -> None:
        publish(f"{address}/a", "x" * 2_000_000)
        context = multiprocessing.get_context("spawn")
        go = context.Event()
        results = context.Queue()
        artifact = reference(f"{address}/a")
        processes = [context.Process(target=_fetch, args=(artifact, go, results)) for _ in range(3)]
        for process in processes:
            process.start()
        go.set()
        assert [len(results.get(timeout=PATIENCE_SECONDS)) for _ in processes] == [2_000_000] * 3
        for process in processes:
            process.join(PATIENCE_SECONDS)
        copies = [path.name for path in verified(artifact).parent.iterdir() if path.is_dir()]
        assert copies == [artifact.digest]


def change_keys(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if environment is NO_KEYS else ():
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()


Change = Callable[[S3Server], dict[str, str]]
REFUSALS: list[tuple[Change, str, str]] = [
    (lambda s3: s3.environment(("nobody", s3.owner[1])), "", "AWS_ACCESS_KEY"),
    (lambda s3: s3.environment((s3.owner[0], "wrong")), "", "PermissionError"),
    (lambda s3: NO_KEYS, "", "AWS_ACCESS_KEY"),
    (S3Server.environment, "s3://no-such-bucket/x", "no-such-bucket"),
    (S3Server.environment, "gs://bucket/x", r"gs://bucket/x.*gcsfs"),
    (S3Server.environment, "nonsense://bucket/x", "nonsense://bucket/x"),
]


@pytest.mark.server
@pytest.mark.parametrize(("change", "address", "sentence"), REFUSALS)
def test_what_cannot_be_used_is_named(
    s3: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch,
    change: Change, address: str, sentence: str,
) -> None:  # fmt: skip
    change_keys(monkeypatch, change(s3))
    with pytest.raises(PapaError, match=sentence) as raised:
        Files(address or s3_place).write("file", b"")
    assert "\n" not in str(raised.value)


@pytest.mark.server
def test_who_may_read_reads(s3: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(f"{s3_place}/a")
    change_keys(monkeypatch, s3.environment(s3.reader))
    assert verified(f"{s3_place}/a")
    with pytest.raises(TransientError, match="PermissionError"):
        publish(f"{s3_place}/b")


@pytest.mark.server
def test_a_silent_server_is_named(s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_PATIENCE, "read_timeout", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        change_keys(monkeypatch, {"AWS_ENDPOINT_URL": address})
        with pytest.raises(TransientError, match=f"{address} .*Timeout"):
            Files(s3_place).read("file")
