"""Files that tests of stores write, through the store and past it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from papa.storage.artifacts import (
    opened,
    published,
    read_metadata,
    reference,
    sha256_of_json,
    signed,
)
from papa.storage.files import Files, cache_folder, filesystem

MEGABYTE = 2**20
SECRET = "what lies outside"


def publish(address: str, text: str = "data") -> None:
    with published(address, {"stage": "test"}) as scratch:
        (scratch / "inner").mkdir()
        (scratch / "inner" / "file.txt").write_text(text)


def put(address: str, name: str, data: bytes) -> None:
    """Write a file past the store, as somebody else would."""
    files, root = filesystem(address)
    files.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
    files.pipe_file(f"{root}/{name}", data)


def document(name: str, content: bytes) -> bytes:
    """Metadata that fit the data in every respect, whatever the file's name is."""
    files = {name: sha256(content).hexdigest()}
    told = {"stage": "test", "files": files, "digest": sha256_of_json(files)}
    return json.dumps(signed(told)).encode()


def data(address: str, name: str = "inner/file.txt") -> str:
    """Where below its address a published artifact's file lies."""
    return f"{read_metadata(address)['digest']}/{name}"


def names(address: str) -> list[str]:
    return sorted(file.path for file in Files(address).find())


def local(address: str) -> Path:
    """The folder with an artifact's files on this machine."""
    return reference(address).folder


def content(address: str) -> str:
    return (local(address) / "inner" / "file.txt").read_text()


def open_it(address: str, *needed: str) -> None:
    with opened(reference(address), *needed):
        pass


def in_cache() -> dict[str, str]:
    """What this machine's cache holds."""
    return {str(path): path.read_text() for path in cache_folder().rglob("*") if path.is_file()}
