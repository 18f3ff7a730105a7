"""What an artifact says of itself: the digests of its files, checked before anything in it is believed.

Whoever may write to a shared store writes what every machine reads, and the names in it become paths there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Any

from papa.errors import ArtifactError

METADATA = "metadata.json"
DIGEST = r"[0-9a-f]{64}"


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: object) -> str:
    """Hex SHA-256 of a JSON value in canonical form (sorted keys, no spaces)."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def describe(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata with the digests of every file in ``folder``."""
    files = {
        path.relative_to(folder).as_posix(): sha256_of_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {**metadata, "files": files, "digest": sha256_of_json(files)}


def metadata_bytes(document: Mapping[str, Any]) -> bytes:
    """The metadata as they are stored."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def parse_metadata(data: bytes | None, address: object) -> dict[str, Any]:
    """The document that an artifact's metadata is.

    Args:
        data: its bytes; None where there are none.
        address: the artifact's, for messages.

    Returns:
        A mapping with ``files``, plain relative paths inside the artifact → SHA-256, and ``digest``, theirs.

    Raises:
        ArtifactError: there is none, or it is anything else.
    """
    if data is None:
        raise ArtifactError(
            f"{address} holds no complete artifact ({METADATA} is missing): rerun the stage that makes it"
        )
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        fault: str | None = "not JSON"
    else:
        fault = _fault(document)
    if fault:
        raise ArtifactError(f"{address}/{METADATA} is damaged ({fault}): delete {address} and run again")
    return document


def check_files(folder: Path, address: object, needed: Iterable[str] = ()) -> dict[str, Any]:
    """Check the files in ``folder`` against the metadata there, and return the metadata.

    Args:
        folder: with the artifact's files and metadata.
        address: what messages name.
        needed: files that the metadata must name.

    Raises:
        ArtifactError: there are no metadata, or a file is missing or its bytes changed.
    """
    data = None
    with suppress(FileNotFoundError):
        data = (folder / METADATA).read_bytes()
    metadata = parse_metadata(data, address)
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
    return metadata


def _fault(document: object) -> str | None:
    """What is wrong with the document; None where nothing is."""
    if not isinstance(document, dict):
        return "not a mapping"
    files = document.get("files")
    if not isinstance(files, dict):
        return "'files' is not a mapping"
    for name, digest in files.items():
        if not _is_plain(name):
            return f"{name!r} is no plain relative path inside the artifact"
        if not (isinstance(digest, str) and re.fullmatch(DIGEST, digest)):
            return f"{digest!r} is no SHA-256 of {name!r}"
    if document.get("digest") != sha256_of_json(files):
        return "'digest' is not that of 'files'"
    return None


def _is_plain(name: str) -> bool:
    """Whether a name leads, on every system, to a place inside the folder that it is joined to."""
    return (
        name.isprintable()
        and "\\" not in name
        and not PureWindowsPath(name).drive
        and not {"", ".", ".."} & {*name.split("/")}
        and name != METADATA
    )
