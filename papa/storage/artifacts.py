"""Artifacts: directories of data files that are complete if and only if their ``metadata.json`` is
there, which holds the SHA-256 of every file; reading verifies.

Their *addresses* are folders or URIs; what lies behind a URI is fetched before it is read.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papa.credentials import WHERE_INSTEAD, holds_credentials
from papa.errors import ArtifactError, PapaError, TransientError, in_one_line
from papa.storage.interface import ArtifactStore
from papa.storage.local import LocalStore
from papa.storage.metadata import METADATA, check_files, describe, parse_metadata
from papa.storage.metadata import sha256_of_file as sha256_of_file
from papa.storage.metadata import sha256_of_json as sha256_of_json

Address = str | Path


def store_at(address: Address) -> ArtifactStore:
    """What lies at an address: a folder of this machine, or what is behind a URI."""
    text = str(address).removeprefix("file://")
    if holds_credentials(text):
        raise ArtifactError(
            f"the store's address holds a user, password, key or token: {WHERE_INSTEAD}"
        )
    if "://" in text:
        # Not at the top: fsspec takes a while to import.
        from papa.storage.remote import RemoteStore

        return RemoteStore(text.rstrip("/"))
    if re.match(r"[a-z][a-z0-9+.-]+:", text):
        raise ArtifactError(
            f"'{text}' is no address of a store: give a folder, or a URI such as s3://bucket/prefix"
        )
    return LocalStore(os.path.abspath(Path(text).expanduser()))


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
    store = store_at(address)
    with _disk_errors(address), store.scratch() as scratch, _disk_errors(scratch.parent):
        yield scratch
        store.publish(scratch, describe(scratch, metadata))


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
    return store_at(address).read(METADATA) is not None


def read_metadata(address: Address) -> dict[str, Any]:
    """The metadata of the artifact at ``address``; its files are not looked at."""
    return parse_metadata(store_at(address).read(METADATA), address)


def inspect(address: Address) -> dict[str, Any]:
    """The metadata of the artifact at ``address``, after a look at all of it that needs no
    fetching.
    """
    return store_at(address).inspect()


def is_sound(address: Address) -> bool:
    """Whether an artifact is there and, as far as can be told without fetching, undamaged."""
    return store_at(address).is_sound()


def reference(address: Address) -> ArtifactReference:
    """The reference to the artifact at ``address``."""
    return ArtifactReference(path=str(address), digest=read_metadata(address)["digest"])


def verify(address: Address, *needed: str) -> dict[str, Any]:
    """Check every file of the artifact, the ``needed`` ones among them, against its digest and
    return the metadata.
    """
    folder = fetched(address)
    return check_files(folder, folder, needed)


def fetched(address: Address, digest: str | None = None) -> Path:
    """The artifact's folder on this machine, which must hold ``digest``, if any: what lies behind a
    URI is downloaded once a machine and checked, a folder is returned as it is.
    """
    return store_at(address).fetch(digest)


@contextmanager
def opened(found: ArtifactReference | Address, *needed: str) -> Iterator[Path]:
    """The artifact's verified files on this machine, the ``needed`` ones among them; what the block
    raises on their content becomes one sentence.
    """
    if not isinstance(found, ArtifactReference):
        found = reference(found)
    folder = found.folder
    check_files(folder, folder, needed)
    with reading(found.path):
        yield folder


@contextmanager
def borrowed(address: Address, *needed: str) -> Iterator[Path]:
    """The artifact's verified files on this machine while the block runs; no copy stays behind."""
    with store_at(address).borrow(needed) as folder:
        yield folder


def complete_below(address: Address) -> list[str]:
    """The names of the complete artifacts directly below ``address``, sorted."""
    return store_at(address).complete()


def metadata_below(address: Address) -> dict[str, dict[str, Any]]:
    """The metadata of every complete artifact directly below ``address``, by name."""
    documents = {}
    for name, data in store_at(address).metadata_below().items():
        with suppress(ArtifactError):
            documents[name] = parse_metadata(data, f"{address}/{name}")
    return documents


def remove(address: Address) -> None:
    """Remove an artifact, a folder of artifacts or a file, if there is one, with this machine's
    copies; nobody sees a part of an artifact.
    """
    store_at(address).remove()
