"""Artifacts: files that are complete if and only if their ``metadata.json`` is there, which holds
the SHA-256 of each; whoever reads them checks it.

::

    <address>/<digest>/<file>   the data of one publication
    <address>/metadata.json     put last, and only where there is none; names the digest that counts

Two writers of one address never mix: each writes under its own digest, one of them puts the
metadata, and the other adopts what is in place. What lies behind a URI is fetched before it is
read. In folders for people, and those of earlier versions, data lie beside the metadata.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from papa.errors import ArtifactError, DamagedError, PapaError, TransientError, in_one_line
from papa.storage.atomic import scratch_beside
from papa.storage.cache import copies_of
from papa.storage.files import Address, Files, refuse_links
from papa.storage.metadata import (
    DIGEST,
    METADATA,
    Metadata,
    check_files,
    damaged,
    describe,
    metadata_bytes,
    parse_metadata,
)
from papa.storage.metadata import sha256_of_file as sha256_of_file
from papa.storage.metadata import sha256_of_json as sha256_of_json


@dataclass(frozen=True)
class ArtifactReference:
    """Where an artifact lies and the digest of its files: all that stages pass to one another."""

    path: str
    digest: str

    @property
    def folder(self) -> Path:
        """Its files on this machine; fetched first where they lie behind a URI."""
        return fetched(self.path, self.digest)


@contextmanager
def published(address: Address, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a scratch directory to fill, published at ``address`` with its metadata when the block
    ends without an error; where another process was first, what it published stays.
    """
    files = Files(address)
    with _disk_errors(address), files.scratch() as scratch, _disk_errors(scratch.parent):
        yield scratch
        document = describe(scratch, metadata)
        if is_complete(address):
            return
        files.put(scratch, document["digest"])
        if not files.create(METADATA, metadata_bytes(document)):
            # Another was first; its data may be the same.
            with suppress(DamagedError):
                if read_metadata(address)["digest"] != document["digest"]:
                    files.remove(document["digest"])


@contextmanager
def _disk_errors(where: Address) -> Iterator[None]:
    """Turn a disk that is full or read-only into a sentence, whoever met it."""
    try:
        yield
    except PapaError:
        raise
    except Exception as error:
        if _is(errno.ENOSPC, error):
            raise ArtifactError(
                f"the disk under {where} is full: free some space and run again, what is finished "
                "stays"
            ) from None
        if _is(errno.EROFS, error):
            raise TransientError(
                f"the disk under {where} is read-only: make it writable and run again, what is "
                "finished stays"
            ) from None
        raise


def _is(number: int, error: Exception) -> bool:
    # Not every library keeps the error's number: safetensors only quotes the system's words.
    return getattr(error, "errno", None) == number or os.strerror(number) in str(error)


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
        fault = in_one_line(error) or type(error).__name__
        raise ArtifactError(
            f"{address} holds what no step of this PAPA makes ({fault}): delete it and run again"
        ) from None


def check_form(**forms: tuple[object, object]) -> None:
    """Compare what tensors are found to be with what they must be."""
    for name, (found, expected) in forms.items():
        if found != expected:
            raise ValueError(f"{name} is {found}, expected {expected}")


def is_complete(address: Address) -> bool:
    """Whether a whole artifact lies at ``address``."""
    return Files(address).read(METADATA) is not None


def read_metadata(address: Address) -> Metadata:
    """The metadata of the artifact at ``address``; its files are not looked at."""
    address = _artifact(address)
    return parse_metadata(Files(address).read(METADATA), address)


def inspect(address: Address) -> Metadata:
    """The metadata of the artifact at ``address``, after a look at the sizes of its files."""
    metadata = read_metadata(address)
    sizes = metadata.get("sizes", {})
    files = Files(address).find("" if _flat(address, metadata) else metadata["digest"])
    there = {file.path: file.size for file in files if file.plain}
    for name in metadata["files"]:
        if name not in there:
            raise damaged(f"{name} is missing from its artifact", address)
        if there[name] != sizes.get(name, there[name]):
            what = f"{name} is damaged (expected {sizes[name]} bytes, found {there[name]})"
            raise damaged(what, address)
    return metadata


def is_sound(address: Address) -> bool:
    """Whether an artifact is there whose files have their sizes."""
    try:
        inspect(address)
    except DamagedError:
        return False
    return True


def _flat(address: Address, metadata: Metadata) -> bool:
    """Whether data lie beside their metadata: in folders for people, and those of earlier versions
    of PAPA.
    """
    folder = Files(address).folder
    return folder is not None and not (folder / metadata["digest"]).is_dir()


def reference(address: Address) -> ArtifactReference:
    """The reference to the artifact at ``address``."""
    path = str(_artifact(address))
    return ArtifactReference(path, read_metadata(path)["digest"])


def _artifact(address: Address) -> Address:
    """The artifact at an address, or the one whose data a folder holds."""
    parent, name = os.path.split(address)
    is_data = re.fullmatch(DIGEST, name) and os.path.isfile(os.path.join(parent, METADATA))
    return parent if is_data else address


def fetched(address: Address, digest: str | None = None) -> Path:
    """The folder on this machine with the files of an artifact, which must hold ``digest``, if any:
    what lies behind a URI is downloaded once a machine and checked, a folder is not.
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
        folder = files.folder if _flat(address, metadata) else files.folder / found
        refuse_links(files.folder, folder)
        return folder
    copy = copies_of(files.address) / found[:16]
    copy.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(copy.with_suffix(".lock")):
        try:
            check_files(copy, metadata, copy)
        except DamagedError:
            with folder_written(copy, metadata) as scratch:
                files.get(found, metadata["files"], scratch)
                check_files(scratch, metadata, address)
    return copy


@contextmanager
def folder_written(folder: Path, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a scratch directory to fill; it replaces ``folder`` when the block ends without an
    error, with its metadata and digests in it: for people, and for this machine alone.
    """
    with scratch_beside(folder) as scratch:
        yield scratch
        (scratch / METADATA).write_bytes(metadata_bytes(describe(scratch, metadata)))
        remove(folder)
        scratch.rename(folder)


def verify(address: Address, *needed: str) -> Metadata:
    """Check every file of an artifact, the ``needed`` ones among them, against its digest, and
    return its metadata; a folder of data stands for its artifact.
    """
    address = _artifact(address)
    metadata = read_metadata(address)
    check_files(fetched(address, metadata["digest"]), metadata, address, needed)
    return metadata


@contextmanager
def opened(found: ArtifactReference | Address, *needed: str) -> Iterator[Path]:
    """The artifact's verified files on this machine, the ``needed`` ones among them; what the block
    raises on their content becomes one sentence.
    """
    if not isinstance(found, ArtifactReference):
        found = reference(found)
    folder = found.folder
    verify(folder, *needed)
    with reading(found.path):
        yield folder


def metadata_below(address: Address) -> dict[str, Metadata]:
    """The metadata of every complete artifact directly below ``address``, by name."""
    documents = {}
    for name, data in Files(address).metadata_below(METADATA).items():
        with suppress(DamagedError):
            documents[name] = parse_metadata(data, f"{address}/{name}")
    return documents


def remove(address: Address) -> None:
    """Remove an artifact, a folder of artifacts or a file, if there is one, with this machine's
    copies; its metadata go first, so that nobody takes a part of it for complete.
    """
    files = Files(address)
    if files.folder is None:
        files.remove(METADATA)
        shutil.rmtree(copies_of(files.address), ignore_errors=True)
    files.remove()
