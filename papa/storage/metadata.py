"""What an artifact says of itself: the digests of its files and of what it says, checked before
anything is believed.

Whoever may write to a shared store writes what every machine reads, and the names in it become
paths there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from papa.errors import ArtifactError, DamagedError, in_one_line, shown

METADATA = "metadata.json"
DIGEST = r"[0-9a-f]{64}"
_OWN = "metadata_digest"


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
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / METADATA
    }
    files = {name: sha256_of_file(path) for name, path in paths.items()}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
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
        raise DamagedError(
            f"{address} holds no complete artifact ({METADATA} is missing)", str(address)
        )
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


def check_files(
    folder: Path, metadata: Mapping[str, Any], address: object, needed: Iterable[str] = ()
) -> None:
    """Check the files in ``folder`` against the metadata, which must name the ``needed`` ones."""
    for name in needed:
        if name not in metadata["files"]:
            raise damaged(f"{METADATA} names no {name}", address)
    root = folder.resolve()
    for name, expected in metadata["files"].items():
        path = folder / name
        if not path.is_file():
            raise damaged(f"{name} is missing from its artifact", address)
        if path.resolve() != root / name:
            raise damaged(f"{name} is a link, and none leads out of an artifact", address)
        try:
            found = sha256_of_file(path)
        except OSError as error:
            raise ArtifactError(
                f"{address}/{name} cannot be read ({error.strerror}): check its rights"
            ) from None
        if found != expected:
            told = f"expected SHA-256 {str(expected)[:12]}, found {found[:12]}"
            raise damaged(f"{name} is damaged ({told})", address)


def is_plain(name: str) -> bool:
    """Whether a name leads, on every system, to a place inside the folder that it is joined to."""
    return (
        name.isprintable()
        and "\\" not in name
        and not PureWindowsPath(name).drive
        and not {"", ".", ".."} & {*name.split("/")}
    )
