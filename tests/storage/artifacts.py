"""Artifacts that tests write and read at any address."""

import json
from hashlib import sha256

from fsspec.implementations.local import LocalFileSystem

from papa.files import cache_folder
from papa.storage.artifacts import (
    ArtifactReference,
    digest_of,
    published,
    read_metadata,
    signed,
    verified,
)
from papa.storage.files import Address, Files

DATA = "0123456789abcdef" * 2


def publish(address: str, text: str = "data") -> None:
    with published(address, {"stage": "test"}) as scratch:
        (scratch / "inner").mkdir()
        (scratch / "inner" / "file.txt").write_text(text)


def put(address: str, name: str, data: bytes) -> None:
    with Files(address).access(name) as (files, path):
        files = files or LocalFileSystem()
        files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.pipe_file(path, data)


def document(name: str, content: bytes) -> bytes:
    """Metadata that fit the data in every respect, whatever the file's name is."""
    files = {name: sha256(content).hexdigest()}
    return json.dumps(signed({"stage": "test", "data": DATA, "files": files})).encode()


def data(address: str, name: str = "inner/file.txt") -> str:
    return f"{read_metadata(address)['data']}/{name}"


def reference(address: Address) -> ArtifactReference:
    return ArtifactReference(str(address), digest_of(read_metadata(address)))


def names(address: str) -> list[str]:
    return sorted(Files(address).find())


def content(address: str) -> str:
    return (verified(address) / "inner" / "file.txt").read_text()


def in_cache() -> dict[str, str]:
    return {str(path): path.read_text() for path in cache_folder().rglob("*") if path.is_file()}
