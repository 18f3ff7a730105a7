"""Metadata that somebody else wrote: whatever it says, nothing is read or written outside the artifact."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from papa.corpora.corpus import CORPUS, TOKENISE_VERSION, load_corpus
from papa.errors import ArtifactError
from papa.storage.artifacts import borrowed, fetched, metadata_below, read_metadata, verify
from papa.storage.cache import cache_folder
from papa.storage.digests import sha256_of_file, sha256_of_json
from papa.storage.filesystem import filesystem

NAMES = [
    "../escaped.txt",
    "../../../../../escaped.txt",
    "inner/../../escaped.txt",
    "{outside}/escaped.txt",
    "//escaped.txt",
    "./file.txt",
    "inner//file.txt",
    "inner/",
    "",
    "..",
    "..\\escaped.txt",
    "C:escaped.txt",
    "file\0.txt",
    "file\x1b[2J.txt",
    "metadata.json",
]
SECRET = "what lies outside"


def everything(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the cache, with a file that nobody may read or overwrite."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


def document(name: str, content: bytes) -> bytes:
    """Metadata that fit the data in every respect but the file's name."""
    files = {name: sha256(content).hexdigest()}
    return json.dumps({"stage": "test", "files": files, "digest": sha256_of_json(files)}).encode()


def put(address: str, name: str) -> None:
    """Publish what a hostile writer would: the data where a reader asks for them, then the metadata."""
    files, root = filesystem(address)
    data = document(name, b"evil")
    key = f"{root}/{json.loads(data)['digest']}/{name}"
    # This server refuses some of these keys itself; others take them.
    with suppress(OSError):
        files.pipe_file(key, b"evil")
    files.pipe_file(f"{root}/metadata.json", data)


@pytest.mark.server
@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_store_writes_nothing_outside_the_cache(
    s3_place: str, tmp_path: Path, outside: Path, name: str
) -> None:
    name = name.format(outside=outside)
    address = f"{s3_place}/artifacts/test/key"
    put(address, name)
    for read in (fetched, verify, read_metadata, lambda place: borrowed(place).__enter__()):
        with pytest.raises(ArtifactError, match=r"is no plain relative path inside the artifact.*delete") as raised:
            read(address)
        assert len(str(raised.value).splitlines()) == 1
    assert metadata_below(f"{s3_place}/artifacts/test") == {}
    assert everything(outside) == {"secret.txt": SECRET}
    assert not list(tmp_path.rglob("*escaped*"))
    assert not everything(cache_folder())


@pytest.mark.server
def test_the_same_store_with_a_plain_name_is_read(s3_place: str) -> None:
    """The control: only the name was wrong."""
    put(f"{s3_place}/a", "inner/file.txt")
    assert (fetched(f"{s3_place}/a") / "inner" / "file.txt").read_text() == "evil"


@pytest.mark.parametrize("name", [*NAMES, "../outside/secret.txt"])
def test_a_hostile_folder_reads_nothing_outside(tmp_path: Path, outside: Path, name: str) -> None:
    """Even where the digest of the file outside is known."""
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "metadata.json").write_bytes(document(name.format(outside=outside), SECRET.encode()))
    with pytest.raises(ArtifactError, match="is no plain relative path inside the artifact"):
        verify(folder)
    with pytest.raises(ArtifactError, match="is no plain relative path inside the artifact"):
        borrowed(folder).__enter__()


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda sound: {name: value for name, value in sound.items() if name != key}


@pytest.mark.server
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda _: [], "not a mapping"),
        (lambda _: "text", "not a mapping"),
        (without("files"), "'files' is not a mapping"),
        (lambda sound: {**sound, "files": ["file.txt"]}, "'files' is not a mapping"),
        (lambda sound: {**sound, "files": {"file.txt": 7}}, "7 is no SHA-256 of 'file.txt'"),
        (lambda sound: {**sound, "files": {"file.txt": "AB" * 32}}, "is no SHA-256 of 'file.txt'"),
        (lambda sound: {**sound, "files": {"file.txt": "../" * 21 + "x"}}, "is no SHA-256 of 'file.txt'"),
        (without("digest"), "'digest' is not that of 'files'"),
        (lambda sound: {**sound, "digest": "../../../escaped"}, "'digest' is not that of 'files'"),
        (lambda sound: {**sound, "digest": "0" * 64}, "'digest' is not that of 'files'"),
    ],
)
def test_what_is_no_metadata_is_one_sentence(
    s3_place: str, tmp_path: Path, change: Callable[[dict[str, Any]], Any], fault: str
) -> None:
    data = json.dumps(change(json.loads(document("file.txt", b"data")))).encode()
    files, root = filesystem(f"{s3_place}/a")
    files.pipe_file(f"{root}/metadata.json", data)
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "file.txt").write_bytes(b"data")
    (folder / "metadata.json").write_bytes(data)
    for address in (f"{s3_place}/a", folder):
        with pytest.raises(ArtifactError) as raised:
            verify(address)
        assert str(raised.value).startswith(f"{address}/metadata.json is damaged (")
        assert fault in str(raised.value)
    assert not everything(cache_folder())


@pytest.mark.parametrize("file", ["../outside/secret.txt", "train-00001.arrow"])
def test_a_corpus_reads_none_but_its_own_files(tmp_path: Path, outside: Path, file: str) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train-00000.arrow").write_bytes(b"rows")
    (folder / "train-00001.arrow").write_bytes(b"rows that no digest covers")

    def name_shards(*names: str, covered: tuple[str, ...] = ("train-00000.arrow", CORPUS)) -> None:
        shards = {"train": [{"file": name, "rows": 1} for name in names], "validation": []}
        held = {"kind": "text", "slots": 8, "pad_token_id": 0, "label_names": None, "shards": shards}
        (folder / CORPUS).write_text(json.dumps(held))
        files = {name: sha256_of_file(folder / name) for name in covered}
        metadata = {"stage": "tokenize", "version": TOKENISE_VERSION, "files": files, "digest": sha256_of_json(files)}
        (folder / "metadata.json").write_text(json.dumps(metadata))

    name_shards("train-00000.arrow")
    assert load_corpus(folder).split("train").shards == (folder / "train-00000.arrow",)
    name_shards("train-00000.arrow", file)
    with pytest.raises(ArtifactError, match=f"names a shard '{file}' that is none of its files"):
        load_corpus(folder)
    name_shards("train-00000.arrow", covered=("train-00000.arrow",))
    with pytest.raises(ArtifactError, match=rf"holds no {CORPUS} that its digests cover"):
        load_corpus(folder)


def test_a_file_that_no_digest_covers_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "file.txt").write_bytes(b"data")
    (folder / "scores.json").write_text("{}")
    (folder / "metadata.json").write_bytes(document("file.txt", b"data"))
    assert verify(folder, "file.txt")
    for read in (lambda: verify(folder, "scores.json"), lambda: borrowed(folder, "scores.json").__enter__()):
        with pytest.raises(ArtifactError, match=r"metadata.json names no scores.json: delete"):
            read()
