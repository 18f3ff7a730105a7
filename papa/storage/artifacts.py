"""Artifacts: files that are complete if and only if their ``metadata.json`` is there, which holds
the SHA-256 of each; whoever reads them checks it.

::

    <address>/<digest>/<file>   the data of one publication
    <address>/metadata.json     put last, and only where there is none; names the digest that counts

Two writers of one address never mix: each writes under its own digest, one of them puts the
metadata, and the other adopts what is in place. What lies behind a URI is fetched before it is
read. In folders for people data lie beside the metadata. Whoever may write to a shared store writes
what every machine reads, and names in metadata become paths there: they are checked first.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from filelock import FileLock

from papa.errors import (
    ArtifactError,
    DamagedError,
    PapaError,
    TransientError,
    in_one_line,
    shown,
)
from papa.storage.files import (
    Address,
    Files,
    cache_folder,
    copies_of,
    refuse_links,
    scratch_beside,
    write_atomically,
)

METADATA = "metadata.json"
DIGEST = r"[0-9a-f]{64}"
_OWN = "metadata_digest"
_ASKED_AT_ONCE = 16


@dataclass(frozen=True)
class ArtifactReference:
    """Where an artifact lies and the digest of its files: all that stages pass to one another."""

    path: str
    digest: str

    @property
    def folder(self) -> Path:
        """Its files on this machine; fetched first where they lie behind a URI."""
        return _fetched(self.path, self.digest)[0]


@contextmanager
def published(address: Address, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a scratch directory to fill, published at ``address`` with its metadata when the block
    ends without an error; where another process was first, what it published stays.
    """
    files = Files(address)
    near = files.folder or cache_folder() / "scratch" / "of"
    with _disk_errors(near), scratch_beside(near) as scratch:
        yield scratch
        document = describe(scratch, metadata)
        if is_complete(address):
            return
        files.put(scratch, document["digest"])
        new = files.write(METADATA, metadata_bytes(document), new=True)
        # Where another was first, its data may be the same.
        if not new and read_metadata(address)["digest"] != document["digest"]:
            files.remove(document["digest"])


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn a disk that is full or read-only into a sentence, whoever met it."""
    try:
        yield
    except PapaError:
        raise
    except Exception as error:
        # Not every library keeps the error's number: safetensors only quotes the system's words.
        for number, kind, what in (
            (errno.ENOSPC, ArtifactError, "full: free some space"),
            (errno.EROFS, TransientError, "read-only: make it writable"),
        ):
            if os.strerror(number) in str(error):
                raise kind(
                    f"the disk under {folder} is {what} and run again, what is finished stays"
                ) from None
        raise


@contextmanager
def reading(address: Address) -> Iterator[None]:
    """What the block raises on the content of an artifact whose digests fit becomes one sentence:
    whoever can write to a store can sign what no step makes.
    """
    try:
        yield
    except (PapaError, OSError):
        raise
    except Exception as error:
        raise ArtifactError(
            f"{address} holds what no step of this PAPA makes ({in_one_line(error)}): delete it "
            "and run again"
        ) from None


def check_form(**forms: tuple[object, object]) -> None:
    """Compare what tensors are found to be with what they must be."""
    for name, (found, expected) in forms.items():
        if found != expected:
            raise ValueError(f"{name} is {found}, expected {expected}")


def is_complete(address: Address) -> bool:
    """Whether a whole artifact lies at ``address``."""
    return Files(address).read(METADATA) is not None


def read_metadata(address: Address) -> dict[str, Any]:
    """The metadata of the artifact at ``address``; its files are not looked at."""
    address = _artifact(address)
    return parse_metadata(Files(address).read(METADATA), address)


def reference(address: Address) -> ArtifactReference:
    """The reference to the artifact at ``address``."""
    return ArtifactReference(str(_artifact(address)), read_metadata(address)["digest"])


def _fetched(address: Address, digest: str | None = None) -> tuple[Path, dict[str, Any]]:
    """The folder on this machine with the files of an artifact, which must hold ``digest``, if any,
    and its metadata. What lies behind a URI is downloaded, and checked, once a machine.
    """
    address = _artifact(address)
    files, metadata = Files(address), read_metadata(address)
    found = metadata["digest"]
    if digest not in (None, found):
        raise ArtifactError(
            f"{address} holds {found[:12]}, expected {digest[:12]}: it was made again meanwhile, "
            "run again"
        )
    if files.folder is not None:
        folder = files.folder / found
        if not folder.is_dir():
            folder = files.folder
        refuse_links(files.folder, folder)
        return folder, metadata
    copies = copies_of(files.address)
    copies.mkdir(parents=True, exist_ok=True)
    with FileLock(copies / ".lock"):
        if not (copies / found).is_dir():
            with scratch_beside(copies / found) as scratch:
                files.get(found, metadata["files"], scratch)
                check_files(scratch, metadata, address)
                write_atomically(copies / METADATA, metadata_bytes(metadata))
                scratch.rename(copies / found)
    return copies / found, metadata


def _artifact(address: Address) -> Address:
    """The artifact at an address, or the one whose data a folder holds."""
    parent, name = os.path.split(address)
    is_data = len(name) == 64 and os.path.isfile(os.path.join(parent, METADATA))
    return parent if is_data else address


@contextmanager
def folder_written(folder: Path, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a scratch directory to fill; it replaces ``folder`` when the block ends without an
    error, with its metadata and digests in it: for people, and for this machine alone.
    """
    with _disk_errors(folder), scratch_beside(folder) as scratch:
        yield scratch
        (scratch / METADATA).write_bytes(metadata_bytes(describe(scratch, metadata)))
        remove(folder)
        scratch.rename(folder)


def verify(address: Address, *needed: str) -> dict[str, Any]:
    """Check every file of an artifact, the ``needed`` ones among them, against its digest, and
    return its metadata.
    """
    folder, metadata = _fetched(address)
    check_files(folder, metadata, _artifact(address), *needed)
    return metadata


@contextmanager
def opened(artifact: ArtifactReference, *needed: str) -> Iterator[Path]:
    """The artifact's verified files on this machine, the ``needed`` ones among them; what the block
    raises on their content becomes one sentence.
    """
    folder, metadata = _fetched(artifact.path, artifact.digest)
    check_files(folder, metadata, artifact.path, *needed)
    with reading(artifact.path):
        yield folder


def metadata_below(address: Address) -> dict[str, dict[str, Any]]:
    """The metadata of every complete artifact directly below ``address``, by name."""
    files = Files(address)
    there = (file.path.split("/") for file in files.find())
    names = [path[0] for path in there if path[1:] == [METADATA] and path[0][0] != "."]
    documents = {}
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
        read = threads.map(files.read, [f"{name}/{METADATA}" for name in names])
        for name, data in zip(names, read, strict=True):
            with suppress(DamagedError):
                documents[name] = parse_metadata(data, f"{address}/{name}")
    return documents


def remove(address: Address) -> None:
    """Remove an artifact, a folder of artifacts or a file, if there is one, with this machine's
    copies; its metadata go first, so that nobody takes a part of it for complete.
    """
    files = Files(address)
    files.remove(METADATA)
    if files.folder is None:
        shutil.rmtree(copies_of(files.address), ignore_errors=True)
    files.remove()


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: object) -> str:
    """Hex SHA-256 of a JSON value in canonical form (sorted keys, no spaces)."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def describe(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata with the sizes and digests of every file in ``folder``, and of all that they
    say.
    """
    files, sizes = {}, {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / METADATA:
            name = path.relative_to(folder).as_posix()
            files[name], sizes[name] = sha256_of_file(path), path.stat().st_size
    return signed({**metadata, "files": files, "sizes": sizes, "digest": sha256_of_json(files)})


def signed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a digest over all that it says."""
    # As JSON reads it back: keys are strings there.
    content = json.loads(
        json.dumps({name: value for name, value in document.items() if name != _OWN})
    )
    return {**content, _OWN: sha256_of_json(content)}


def metadata_bytes(document: Mapping[str, Any]) -> bytes:
    """The metadata as they are stored."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def parse_metadata(data: bytes | None, address: object) -> dict[str, Any]:
    """The document that an artifact's metadata is: a mapping with ``files``, plain relative paths
    inside the artifact → SHA-256, and ``digest``, theirs.
    """
    if data is None:
        what = f"{address} holds no complete artifact ({METADATA} is missing)"
        raise DamagedError(what, str(address))
    try:
        document: dict[str, Any] = json.loads(data)
        for name in {**document["files"]}:
            if name == METADATA or not is_plain(name):
                raise ValueError(f"{shown(name)} is no plain relative path inside the artifact")
        if document["digest"] != sha256_of_json(document["files"]):
            raise ValueError("'digest' is not that of 'files'")
        if document[_OWN] != signed(document)[_OWN]:
            raise ValueError(f"'{_OWN}' is not that of what it says")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(f"{METADATA} is damaged ({in_one_line(error)})", address) from None
    return document


def damaged(what: str, address: object) -> DamagedError:
    """What is wrong with a file of the artifact at an address."""
    return DamagedError(f"{address}/{what}", str(address))


def check_files(folder: Path, metadata: Mapping[str, Any], address: object, *needed: str) -> None:
    """Check the files in ``folder`` against the metadata, which must name the ``needed`` ones."""
    for name in needed:
        if name not in metadata["files"]:
            raise damaged(f"{METADATA} names no {name}", address)
    for name, expected in metadata["files"].items():
        path = folder / name
        if not path.is_file():
            raise damaged(f"{name} is missing from its artifact", address)
        if path.resolve() != folder.resolve() / name:
            raise damaged(f"{name} is a link, and none leads out of an artifact", address)
        if (found := sha256_of_file(path)) != expected:
            told = f"expected SHA-256 {expected[:12]}, found {found[:12]}"
            raise damaged(f"{name} is damaged ({told})", address)


def is_plain(name: str) -> bool:
    """Whether a name leads, on every system, to a place inside the folder that it is joined to."""
    return (
        name.isprintable()
        and "\\" not in name
        and not PureWindowsPath(name).drive
        and not {"", ".", ".."} & {*name.split("/")}
    )
