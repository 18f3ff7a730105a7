"""Artifacts: directories that are complete or absent, and that know what they hold.

An artifact is a directory of data files plus ``metadata.json``. It appears whole, so it is complete
if and only if its metadata is there. The metadata carries the SHA-256 of every data file; reading
verifies.

Its *address* is a folder, or a URI such as ``s3://bucket/papa/artifacts/average/<key>``. What lies
behind a URI is fetched into this machine's cache before it is read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papa.errors import ArtifactError, PapaError, TransientError, in_one_line
from papa.storage.address import Address, store_at
from papa.storage.metadata import METADATA, check_files, describe, parse_metadata
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
    """Yield a scratch directory to fill; on success add its metadata and publish it at ``address``.

    On an error nothing appears at ``address`` and the scratch directory is removed. Where another
    process published the same artifact first, the scratch directory is dropped and the one in place
    stays.
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
            message = (
                f"the disk under {where} is full: free some space and run again, what is finished "
                "stays"
            )
            raise ArtifactError(message) from None
        if _is(errno.EROFS, error):
            message = (
                f"the disk under {where} is read-only: make it writable and run again, what is "
                "finished stays"
            )
            raise TransientError(message) from None
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
    """The artifact's folder on this machine, which must hold ``digest``; None takes what it holds
    now.

    What lies behind a URI is downloaded once a machine and content, and checked; a folder is
    returned as it is.
    """
    return store_at(address).fetch(digest)


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
    """Remove an artifact, a folder of artifacts or a file, with this machine's copies; nothing
    where there is none.

    An artifact disappears at once: nobody sees a part of it.
    """
    store_at(address).remove()
