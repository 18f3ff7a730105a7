"""Artifacts: directories that are complete or absent, and that know what they hold.

An artifact is a directory of data files plus ``metadata.json``. It is written aside and renamed into place, so it is
complete if and only if its metadata is there. The metadata carries the SHA-256 of every data file; reading verifies.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papa.errors import ArtifactError

METADATA = "metadata.json"


@dataclass(frozen=True)
class ArtifactReference:
    """Where an artifact lies and the digest of what it holds: all that stages pass to one another."""

    path: str
    digest: str

    @property
    def folder(self) -> Path:
        return Path(self.path)


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: Any) -> str:
    """Hex SHA-256 of a JSON value in canonical form (sorted keys, no spaces)."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@contextmanager
def published(folder: Path, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a scratch directory to fill; on success add its metadata and rename it to ``folder``.

    On an error nothing appears at ``folder`` and the scratch directory is removed. Where another process published
    the same artifact first, the scratch directory is dropped and the one in place stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.parent / f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    scratch.mkdir()
    try:
        yield scratch
        files = {
            str(path.relative_to(scratch)): sha256_of_file(path)
            for path in sorted(scratch.rglob("*"))
            if path.is_file()
        }
        document = {**metadata, "files": files, "digest": sha256_of_json(files)}
        (scratch / METADATA).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        try:
            scratch.rename(folder)
        except OSError:
            if not is_complete(folder):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def is_complete(folder: Path) -> bool:
    """Whether a whole artifact lies at ``folder``."""
    return (folder / METADATA).is_file()


def read_metadata(folder: Path) -> dict[str, Any]:
    """The metadata of the artifact at ``folder``, unverified.

    Raises:
        ArtifactError: there is no artifact, or its metadata is not JSON.
    """
    path = folder / METADATA
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ArtifactError(
            f"{folder} holds no complete artifact ({METADATA} is missing): rerun the stage that makes it"
        ) from None
    except ValueError:
        raise ArtifactError(f"{path} is damaged (not JSON): delete {folder} and run again") from None


def reference(folder: Path) -> ArtifactReference:
    """The reference to the artifact at ``folder``."""
    return ArtifactReference(path=str(folder), digest=read_metadata(folder)["digest"])


def verify(folder: Path) -> dict[str, Any]:
    """Check every file of the artifact against its digest and return the metadata.

    Raises:
        ArtifactError: a file is missing or its bytes changed.
    """
    metadata = read_metadata(folder)
    for name, expected in metadata["files"].items():
        path = folder / name
        if not path.is_file():
            raise ArtifactError(f"{path} is missing from its artifact: delete {folder} and run again")
        found = sha256_of_file(path)
        if found != expected:
            raise ArtifactError(
                f"{path} is damaged (expected SHA-256 {expected[:12]}, found {found[:12]}): "
                f"delete {folder} and run again"
            )
    return metadata
