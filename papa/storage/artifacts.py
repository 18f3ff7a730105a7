"""Artifacts: files that are complete if and only if their ``metadata.json`` is there, which holds
the SHA-256 of each; whoever reads them checks it.

::

    <address>/<data>/<file>    what one writer published, under a name of its own
    <address>/metadata.json    put last, and only where there is none; names the data that count

So writers of one address never mix. What lies behind a URI is fetched before it is read. In folders
for people the files lie beside the metadata. Whoever may write to a shared store writes what every
machine reads, and names in metadata become paths there: they are checked first.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from papa.errors import ArtifactError, DamagedError, in_one_line, joined, shown
from papa.files import (
    cache_folder,
    disk_errors,
    is_plain,
    scratch_beside,
    sha256_of_file,
    sha256_of_json,
)
from papa.storage.files import Address, Files, refuse_links

METADATA = "metadata.json"


@dataclass(frozen=True)
class ArtifactReference:
    """Where an artifact lies and the digest of its files: all that stages pass on."""

    path: str
    digest: str


@contextmanager
def published(address: Address, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a folder to fill, published at ``address`` with its metadata when the block ends
    without an error; where another process was first, what it published stays.
    """
    files, name, won = Files(address), uuid.uuid4().hex, False
    with files.used(name):
        folder = (files.folder or cache_folder() / "scratch") / name
    try:
        with disk_errors(folder.parent):
            folder.mkdir(parents=True)
            yield folder
            document = json.dumps(describe(folder, {**metadata, "data": name}), indent=2)
            if files.folder is None:
                files.put(folder, name)
            won = files.write(METADATA, f"{document}\n".encode())
            # Of a write whose answer was lost the client learns that there is one.
            won = won or read_metadata(address)["data"] == name
    finally:
        if not won:
            files.remove(name)
        if files.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def describe(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata with sizes and digests of every file in ``folder``, and one of all they say."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    files = {name: sha256_of_file(path) for name, path in names.items()}
    sizes = {name: path.stat().st_size for name, path in names.items()}
    return signed({**metadata, "files": files, "sizes": sizes})


def signed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as JSON reads it back, with a digest over all that it says."""
    content = json.loads(json.dumps(document))
    content.pop("digest", None)
    return {**content, "digest": sha256_of_json(content)}


def is_complete(address: Address) -> bool:
    """Whether a whole artifact lies at ``address``."""
    return Files(address).read(METADATA) is not None


def read_metadata(artifact: ArtifactReference | Address) -> dict[str, Any]:
    """The metadata of an artifact, which must be the one that a reference names; its files are not
    looked at.
    """
    address = artifact.path if isinstance(artifact, ArtifactReference) else artifact
    metadata = _parsed(Files(address).read(METADATA), address)
    if isinstance(artifact, ArtifactReference) and artifact.digest != digest_of(metadata):
        raise ArtifactError(f"{address} was made again meanwhile, as something else: run again")
    return metadata


def digest_of(metadata: Mapping[str, Any]) -> str:
    """The digest of an artifact's files."""
    return sha256_of_json(metadata["files"])


def _parsed(data: bytes | None, address: object) -> dict[str, Any]:
    """A mapping with ``files``, plain relative paths inside the artifact → SHA-256, and its own
    ``digest``.
    """
    if data is None:
        what = f"{address} holds no complete artifact ({METADATA} is missing)"
        raise DamagedError(what, str(address))
    try:
        document: dict[str, Any] = json.loads(data)
        for name in (document["data"], *{**document["files"]}):
            if name == METADATA or not is_plain(name):
                raise ValueError(f"{shown(name)} is no plain relative path inside the artifact")
        if document["digest"] != signed(document)["digest"]:
            raise ValueError("'digest' is not that of what it says")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{METADATA} is damaged, or of another version of PAPA ({in_one_line(error)})"
        raise damaged(what, address) from None
    return document


def metadata_below(address: Address) -> dict[str, dict[str, Any]]:
    """The metadata of every complete artifact directly below ``address``, by name."""
    files = Files(address)
    there = (name.split("/") for name in files.find())
    names = [path[0] for path in there if path[1:] == [METADATA] and path[0][0] != "."]
    documents = {}
    with ThreadPoolExecutor(16) as threads:
        read = threads.map(files.read, [f"{name}/{METADATA}" for name in names])
        for name, data in zip(names, read, strict=True):
            with suppress(DamagedError):
                documents[name] = _parsed(data, f"{address}/{name}")
    return documents


def verified(artifact: ArtifactReference | Address, *needed: str) -> Path:
    """The folder on this machine with an artifact's files, the ``needed`` ones among them, each
    checked against its digest. What lies behind a URI is downloaded once a machine.
    """
    address = artifact.path if isinstance(artifact, ArtifactReference) else artifact
    files, metadata = Files(address), read_metadata(artifact)
    if files.folder is not None:
        folder = files.folder / metadata["data"]
        folder = folder if folder.is_dir() else files.folder
        refuse_links(files.folder, folder)
        check_files(folder, metadata, address, *needed)
        return folder
    folder = copy_of(digest_of(metadata))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with scratch_beside(folder) as scratch:
                files.get(metadata["data"], metadata["files"], scratch)
                scratch.rename(folder)
        try:
            check_files(folder, metadata, address, *needed)
        except DamagedError:
            shutil.rmtree(folder)
            raise
    return folder


def copy_of(digest: str) -> Path:
    """Where this machine keeps its copy of an artifact behind a URI."""
    return cache_folder() / "artifacts" / digest


def check_files(folder: Path, metadata: Mapping[str, Any], address: object, *needed: str) -> None:
    """Check the files in ``folder`` against the metadata, which must name the ``needed`` ones."""
    if missing := [name for name in needed if name not in metadata["files"]]:
        raise damaged(f"{METADATA} names no {joined(missing)}", address)
    for name, expected in metadata["files"].items():
        path = folder / name
        if not path.is_file():
            raise damaged(f"{name} is missing from its artifact", address)
        if path.resolve() != folder.resolve() / name:
            raise damaged(f"{name} is a link, and none leads out of an artifact", address)
        if (found := sha256_of_file(path)) != expected:
            told = f"expected SHA-256 {expected[:12]}, found {found[:12]}"
            raise damaged(f"{name} is damaged ({told})", address)


def damaged(what: str, address: object) -> DamagedError:
    """What is wrong with a file of the artifact at an address."""
    return DamagedError(f"{address}/{what}", str(address))


def remove(address: Address) -> None:
    """Remove an artifact, a folder of artifacts or a file, if there is one, with this machine's
    copy; its metadata go first, so that nobody takes a part of it for complete.
    """
    files = Files(address)
    if files.folder is None:
        with suppress(DamagedError):
            shutil.rmtree(copy_of(digest_of(read_metadata(address))), ignore_errors=True)
    files.remove(METADATA)
    files.remove()
