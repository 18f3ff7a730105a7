"""Artifacts: directories that are complete or absent, and that know what they hold.

An artifact is a directory of data files plus ``metadata.json``. It is written aside and renamed into place, so it is
complete if and only if its metadata is there. The metadata carries the SHA-256 of every data file; reading verifies.

Its *address* is a folder, or a URI such as ``s3://bucket/papa/artifacts/average/<key>`` (``papa.storage.remote``). What
lies behind a URI is fetched into this machine's cache before it is read.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from papa.errors import ArtifactError, PapaError
from papa.storage import remote
from papa.storage.cache import copies_of, copy_of, scratch_folder
from papa.storage.digests import sha256_of_file, sha256_of_json
from papa.storage.filesystem import is_uri
from papa.storage.metadata import METADATA, parse_metadata
from papa.storage.remote import RemoteArtifact, StoredFile

Address = str | Path


@dataclass(frozen=True)
class ArtifactReference:
    """Where an artifact lies and the digest of what it holds: all that stages pass to one another.

    Attributes:
        path: its address.
        digest: of its files.
    """

    path: str
    digest: str

    @property
    def folder(self) -> Path:
        """Its files on this machine; fetched first where they lie behind a URI and are not here yet."""
        return fetched(self.path, self.digest)


@contextmanager
def published(address: Address, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a scratch directory to fill; on success add its metadata and publish it at ``address``.

    On an error nothing appears at ``address`` and the scratch directory is removed. Where another process published
    the same artifact first, the scratch directory is dropped and the one in place stays.

    Raises:
        ArtifactError: the disk is full.
    """
    if is_uri(address):
        with scratch_folder() as scratch, _full_disk_errors(scratch.parent):
            yield scratch
            RemoteArtifact(str(address)).publish(scratch, _described(scratch, metadata))
        return
    folder = Path(address)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = _beside(folder)
    scratch.mkdir()
    try:
        with _full_disk_errors(folder.parent):
            yield scratch
            document = _described(scratch, metadata)
            (scratch / METADATA).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        try:
            scratch.rename(folder)
        except OSError:
            if not is_complete(folder):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _full_disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk into a sentence, whoever met it."""
    try:
        yield
    except Exception as error:
        # Not every library keeps the error's number: safetensors only quotes the system's words.
        full = getattr(error, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error)
        if isinstance(error, PapaError) or not full:
            raise
        raise ArtifactError(
            f"the disk under {folder} is full: free some space and run again, what is finished stays"
        ) from None


def is_complete(address: Address) -> bool:
    """Whether a whole artifact lies at ``address``."""
    if is_uri(address):
        return RemoteArtifact(str(address)).metadata() is not None
    return (Path(address) / METADATA).is_file()


def read_metadata(address: Address) -> dict[str, Any]:
    """The metadata of the artifact at ``address``; its files are not looked at.

    Raises:
        ArtifactError: there is no artifact, or its metadata is damaged.
    """
    return _metadata(address)[1]


def reference(address: Address) -> ArtifactReference:
    """The reference to the artifact at ``address``."""
    return ArtifactReference(path=str(address), digest=read_metadata(address)["digest"])


def verify(address: Address, *needed: str) -> dict[str, Any]:
    """Check every file of the artifact against its digest and return the metadata.

    Args:
        address: where it lies.
        needed: files that it must hold, as they are read next.

    Raises:
        ArtifactError: a file is missing or its bytes changed.
    """
    folder = fetched(address)
    metadata = read_metadata(folder)
    _check_files(metadata, folder, folder, needed)
    return metadata


def fetched(address: Address, digest: str | None = None) -> Path:
    """The artifact's folder on this machine.

    What lies behind a URI is downloaded once a machine and content, and checked; a folder is returned as it is.

    Args:
        address: where it lies.
        digest: what it must hold; None takes what it holds now.

    Raises:
        ArtifactError: it is not there, holds something else or is damaged, or the store cannot be used.
    """
    if not is_uri(address):
        return Path(address)
    address = str(address)
    copy = copy_of(address, digest or read_metadata(address)["digest"])
    if not is_complete(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(copy.with_suffix(".lock")):
            if not is_complete(copy):
                with _downloaded(address, digest) as scratch:
                    scratch.rename(copy)
    return copy


@contextmanager
def borrowed(address: Address, *needed: str) -> Iterator[Path]:
    """The artifact's verified files on this machine while the block runs; no copy stays behind.

    Args:
        address: where it lies.
        needed: files that it must hold.

    Raises:
        ArtifactError: it is not there or damaged, or the store cannot be used.
    """
    if is_uri(address):
        with _downloaded(str(address), None, needed) as scratch:
            yield scratch
    else:
        verify(address, *needed)
        yield Path(address)


def complete_below(address: Address) -> list[str]:
    """The names of the complete artifacts directly below ``address``, sorted."""
    if is_uri(address):
        return remote.published_below(str(address))
    return sorted(path.parent.name for path in Path(address).glob(f"*/{METADATA}") if path.parent.name[0] != ".")


def metadata_below(address: Address) -> dict[str, dict[str, Any]]:
    """The metadata of every complete artifact directly below ``address``, by name; damaged ones are left out."""
    if is_uri(address):
        texts = remote.metadata_below(str(address))
    else:
        texts = {name: (Path(address) / name / METADATA).read_bytes() for name in complete_below(address)}
    documents = {}
    for name, text in texts.items():
        with suppress(ArtifactError):
            documents[name] = parse_metadata(text, f"{address}/{name}")
    return documents


def stored_below(address: Address) -> list[StoredFile]:
    """Every file below ``address``; a symbolic link counts as a file and is not followed."""
    if is_uri(address):
        return remote.stored_below(str(address))
    root = Path(address)
    found = []
    for path in () if root.is_symlink() else root.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                found.append(StoredFile(str(path.relative_to(root)), status.st_size, status.st_mtime))
    return found


def remove(address: Address) -> None:
    """Remove an artifact, or a folder of artifacts, with this machine's copies; nothing where there is none.

    It disappears at once: nobody sees a part of it.
    """
    if is_uri(address):
        RemoteArtifact(str(address)).remove()
        shutil.rmtree(copies_of(str(address)), ignore_errors=True)
        return
    folder = Path(address)
    aside = _beside(folder)
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _downloaded(address: str, digest: str | None, needed: Iterable[str] = ()) -> Iterator[Path]:
    """A scratch folder with a verified copy of the artifact; to be renamed by whoever keeps it."""
    data, metadata = _metadata(address)
    if digest is not None and metadata["digest"] != digest:
        raise ArtifactError(
            f"{address} holds {metadata['digest'][:12]}, expected {digest[:12]}: it was made again meanwhile, run again"
        )
    with scratch_folder() as scratch:
        RemoteArtifact(address).download(metadata, scratch)
        _check_files(metadata, scratch, address, needed)
        (scratch / METADATA).write_bytes(data)
        yield scratch


def _metadata(address: Address) -> tuple[bytes, dict[str, Any]]:
    """An artifact's metadata, as stored and as a document.

    Raises:
        ArtifactError: there is no artifact, or its metadata is damaged.
    """
    try:
        found = RemoteArtifact(str(address)).metadata() if is_uri(address) else (Path(address) / METADATA).read_bytes()
    except FileNotFoundError:
        found = None
    if found is None:
        raise ArtifactError(
            f"{address} holds no complete artifact ({METADATA} is missing): rerun the stage that makes it"
        )
    return found, parse_metadata(found, address)


def _described(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata with the digests of every file in ``folder``."""
    files = {
        path.relative_to(folder).as_posix(): sha256_of_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {**metadata, "files": files, "digest": sha256_of_json(files)}


def _check_files(metadata: Mapping[str, Any], folder: Path, address: Address, needed: Iterable[str]) -> None:
    """Check the files in ``folder`` against the metadata; ``address`` is what messages name."""
    for name in needed:
        if name not in metadata["files"]:
            raise ArtifactError(f"{address}/{METADATA} names no {name}: delete {address} and run again")
    for name, expected in metadata["files"].items():
        path = folder / name
        if not path.is_file():
            raise ArtifactError(f"{address}/{name} is missing from its artifact: delete {address} and run again")
        found = sha256_of_file(path)
        if found != expected:
            raise ArtifactError(
                f"{address}/{name} is damaged (expected SHA-256 {expected[:12]}, found {found[:12]}): "
                f"delete {address} and run again"
            )


def _beside(folder: Path) -> Path:
    """A name for a scratch folder on the same disk."""
    return folder.parent / f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
