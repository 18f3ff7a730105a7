"""Artifacts behind a URI: complete or absent, fetched once, never mixed; on a real S3-compatible server."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from papa.errors import ArtifactError, PapaError, TransientError
from papa.storage.artifacts import (
    ArtifactReference,
    borrowed,
    complete_below,
    fetched,
    is_complete,
    metadata_below,
    published,
    read_metadata,
    reference,
    remove,
    stored_below,
    verify,
)
from papa.storage.cache import copies_of, local_name
from papa.storage.filesystem import check
from tests.flows.processes import PATIENCE_SECONDS
from tests.integration.s3 import S3Server

pytestmark = pytest.mark.server


def publish(address: str, text: str = "data") -> None:
    with published(address, {"stage": "test"}) as scratch:
        (scratch / "inner").mkdir()
        (scratch / "inner" / "file.txt").write_text(text)


def objects(address: str) -> list[str]:
    return sorted(file.path for file in stored_below(address))


def files_of_s3() -> Any:
    from s3fs import S3FileSystem

    return S3FileSystem(use_listings_cache=False)


def test_published_whole_and_fetched_once_a_machine(
    s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{s3_place}/artifacts/test/key"
    assert not is_complete(address)
    publish(address)
    assert is_complete(address)
    assert list((tmp_path / "cache" / "scratch").iterdir()) == []
    found = reference(address)
    assert objects(address) == sorted([f"{found.digest}/inner/file.txt", "metadata.json"])
    assert verify(address)["stage"] == "test"
    assert (found.folder / "inner" / "file.txt").read_text() == "data"
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "another machine"))
    assert (found.folder / "inner" / "file.txt").read_text() == "data"


def test_a_copy_needs_no_store(s3_place: str) -> None:
    publish(f"{s3_place}/a")
    found = reference(f"{s3_place}/a")
    folder = found.folder
    files_of_s3().rm(f"{s3_place}/a", recursive=True)
    assert found.folder == folder
    with pytest.raises(ArtifactError, match="no complete artifact"):
        read_metadata(found.path)


def test_an_error_leaves_nothing(s3_place: str, tmp_path: Path) -> None:
    with suppress(RuntimeError), published(f"{s3_place}/a", {}) as scratch:
        (scratch / "file.txt").write_text("half")
        raise RuntimeError
    assert objects(s3_place) == []
    assert list((tmp_path / "cache" / "scratch").iterdir()) == []


def test_data_without_metadata_are_no_artifact(s3_place: str) -> None:
    """What a writer leaves that is killed between the data and the metadata."""
    files_of_s3().pipe_file(f"{s3_place}/a/0123/inner/file.txt", b"half")
    assert not is_complete(f"{s3_place}/a")
    assert complete_below(s3_place) == []
    publish(f"{s3_place}/a")
    assert complete_below(s3_place) == ["a"]
    assert (fetched(f"{s3_place}/a") / "inner" / "file.txt").read_text() == "data"


def test_the_first_to_publish_stays_and_the_other_leaves_nothing(s3_place: str) -> None:
    with published(f"{s3_place}/a", {"stage": "late"}) as scratch:
        (scratch / "file.txt").write_text("late")
        publish(f"{s3_place}/a", "early")
    digest = read_metadata(f"{s3_place}/a")["digest"]
    assert objects(f"{s3_place}/a") == sorted([f"{digest}/inner/file.txt", "metadata.json"])
    assert (fetched(f"{s3_place}/a") / "inner" / "file.txt").read_text() == "early"


def test_the_same_content_twice_stays_whole(s3_place: str) -> None:
    publish(f"{s3_place}/a")
    publish(f"{s3_place}/a")
    assert verify(f"{s3_place}/a")


def test_of_many_writers_one_wins_and_nothing_mixes(s3_place: str) -> None:
    def write(number: int) -> None:
        with published(f"{s3_place}/a", {"writer": number}) as scratch:
            for name in ("one", "two", "three"):
                (scratch / name).write_text(f"{number}" * 1000)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    winner = read_metadata(f"{s3_place}/a")["writer"]
    folder = fetched(f"{s3_place}/a")
    assert {(folder / name).read_text() for name in ("one", "two", "three")} == {f"{winner}" * 1000}
    assert len(objects(f"{s3_place}/a")) == 4, "the others withdrew their data"


def _fetch(found: ArtifactReference, go: Any, results: Any) -> None:
    go.wait()
    folder = found.folder
    results.put((folder / "inner" / "file.txt").read_text())


def test_processes_of_one_machine_fetch_once(s3_place: str) -> None:
    publish(f"{s3_place}/a", "x" * 2_000_000)
    context = multiprocessing.get_context("spawn")
    go, results = context.Event(), context.Queue()
    found = reference(f"{s3_place}/a")
    processes = [context.Process(target=_fetch, args=(found, go, results)) for _ in range(3)]
    for process in processes:
        process.start()
    go.set()
    assert [len(results.get(timeout=PATIENCE_SECONDS)) for _ in processes] == [2_000_000] * 3
    for process in processes:
        process.join(PATIENCE_SECONDS)
    assert [path.suffix for path in copies_of(found.path).iterdir()].count("") == 1


def test_damage_is_found_before_anything_is_kept(s3_place: str) -> None:
    publish(f"{s3_place}/a")
    found = reference(f"{s3_place}/a")
    path = f"{s3_place}/a/{found.digest}/inner/file.txt"
    files_of_s3().pipe_file(path, b"dat4")
    told = rf"{s3_place}/a/inner/file.txt is damaged .*delete {s3_place}/a and run again"
    with pytest.raises(ArtifactError, match=told):
        _ = found.folder
    assert not any(one.is_dir() for one in copies_of(found.path).iterdir())
    files_of_s3().rm_file(path)
    with pytest.raises(ArtifactError, match=r"metadata.json is there, a file under .* is missing"):
        _ = found.folder
    files_of_s3().pipe_file(f"{s3_place}/a/metadata.json", b"{")
    with pytest.raises(ArtifactError, match="not JSON"):
        verify(f"{s3_place}/a")


def test_a_damaged_copy_says_which(s3_place: str) -> None:
    publish(f"{s3_place}/a")
    (fetched(f"{s3_place}/a") / "inner" / "file.txt").write_text("dat4")
    with pytest.raises(ArtifactError, match=rf"{copies_of(f'{s3_place}/a')}.* is damaged"):
        verify(f"{s3_place}/a")
    shutil.rmtree(fetched(f"{s3_place}/a"))
    assert verify(f"{s3_place}/a")


def test_made_again_meanwhile_is_said(s3_place: str) -> None:
    publish(f"{s3_place}/a", "one")
    found = reference(f"{s3_place}/a")
    remove(f"{s3_place}/a")
    publish(f"{s3_place}/a", "two")
    with pytest.raises(ArtifactError, match="made again meanwhile"):
        _ = found.folder


def test_removed_is_gone_here_and_there(s3_place: str) -> None:
    publish(f"{s3_place}/a")
    publish(f"{s3_place}/ab")
    fetched(f"{s3_place}/a")
    remove(f"{s3_place}/a")
    remove(f"{s3_place}/a")
    assert complete_below(s3_place) == ["ab"]
    assert not any(path.startswith("a/") for path in objects(s3_place))
    assert not copies_of(f"{s3_place}/a").exists()


def test_borrowed_leaves_no_copy(s3_place: str) -> None:
    publish(f"{s3_place}/a")
    with borrowed(f"{s3_place}/a") as folder:
        assert (folder / "inner" / "file.txt").read_text() == "data"
    assert not folder.exists()
    assert not copies_of(f"{s3_place}/a").exists()


def test_metadata_of_many_are_read_at_once(s3_place: str) -> None:
    for name in ("a", "b"):
        publish(f"{s3_place}/stage/{name}")
    files_of_s3().pipe_file(f"{s3_place}/stage/damaged/metadata.json", b"{")
    assert {name: document["stage"] for name, document in metadata_below(f"{s3_place}/stage").items()} == {
        "a": "test",
        "b": "test",
    }
    assert metadata_below(f"{s3_place}/none") == {}


def test_names_on_disk_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    uris = ["s3://b/x/y", "s3://b/x-y", "s3://b/x.y", "s3a://b/x/y", f"s3://b/{'long/' * 100}", "s3://b/ü"]
    names = [local_name(uri) for uri in uris]
    assert len(set(names)) == len(uris)
    assert all(len(os.fsencode(name)) < 120 and "/" not in name for name in names)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert local_name(uris[0]) not in names, "the same bucket name at another server is another place"


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
        (wrong_key, None, r"refuses the credentials \(InvalidAccessKeyId\): check AWS_ACCESS_KEY_ID"),
        (wrong_secret, None, r"refuses the credentials \(SignatureDoesNotMatch\): check"),
        (reader, None, r"refuses what these credentials ask \(Access Denied\): it takes the right to .* write"),
        (nobody_listens, None, r"at http://127.0.0.1:1 cannot be reached .*: check AWS_ENDPOINT_URL"),
        (S3Server.environment, "s3://no-such-bucket/x", "is not there .*: create its bucket"),
        (S3Server.environment, "gs://bucket/x", r"a package for 'gs://' is not installed \(.*gcsfs"),
        (S3Server.environment, "nonsense://bucket/x", "is no address of a store .*: give a folder, or a URI"),
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
        check(address or s3_place, write=True)
    assert "\n" not in str(raised.value)


def test_without_credentials(s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(ArtifactError, match=f"no credentials for {s3_place}: set AWS_ACCESS_KEY_ID"):
        check(s3_place, write=False)


def test_who_may_read_reads(s3: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    publish(f"{s3_place}/a")
    for name, value in reader(s3).items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    check(s3_place, write=False)
    assert verify(f"{s3_place}/a")
    with pytest.raises(ArtifactError, match="refuses what these credentials ask"):
        publish(f"{s3_place}/b")


def test_a_server_that_never_answers_is_said(s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        S3FileSystem.clear_instance_cache()
        with pytest.raises(TransientError, match=r"no answer within 15 seconds"):
            check(s3_place, write=True)


def test_metadata_is_readable_json(s3_place: str) -> None:
    publish(f"{s3_place}/a")
    assert json.loads(files_of_s3().cat_file(f"{s3_place}/a/metadata.json"))["digest"]
