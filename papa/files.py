"""Files on this machine: atomic writes, digests, and the cache folder."""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath

from papa.errors import ArtifactError, PapaError

_DISK_PROBLEMS = {errno.ENOSPC: "full: free some space", errno.EROFS: "read-only: make it writable"}


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn errors of a disk that is full or read-only into an ArtifactError, whatever raised
    them.
    """
    try:
        yield
    except PapaError:
        raise
    except Exception as error:
        # Not every library keeps the error's number: safetensors only quotes the system's words.
        for number, problem in _DISK_PROBLEMS.items():
            if os.strerror(number) in str(error):
                raise ArtifactError(
                    f"the disk under {folder} is {problem} and run again; finished steps are kept"
                ) from None
        raise


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """Yield a new directory beside ``path``, to be renamed to it; otherwise it is deleted when the
    block ends.
    """
    scratch = path.with_name(name_aside(path.name))
    with disk_errors(path):
        scratch.mkdir(parents=True)
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def name_aside(name: str) -> str:
    """Return a temporary name for a file or folder that gets ``name`` once it is complete. Killed
    runs leave files of such names.
    """
    return f".{name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file beside ``path`` and rename it into place; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(name_aside(path.name))
    try:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return the folder of downloads and of local copies of stores behind URIs; it may be deleted
    while nothing runs.
    """
    return Path(os.environ.get("PAPA_CACHE") or "~/.cache/papa").expanduser().resolve()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: object) -> str:
    """Return the SHA-256 of a JSON value in canonical form (sorted keys, no spaces), in hex."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


_POINTER = b"version https://git-lfs.github.com/spec/"


def refuse_pointer(path: Path, error: type[PapaError]) -> None:
    """Raise ``error`` if a clone without git-lfs left a pointer in place of a file."""
    # A file that cannot be opened is reported by the code that reads it.
    with suppress(OSError), path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise error(
                f"{path} is a git-lfs pointer, not the file that it stands for: run 'git lfs pull' "
                "in its folder, or download the file"
            )


def is_plain(name: str) -> bool:
    """Return whether a relative path stays, on every system, inside the folder it is joined to."""
    return (
        name.isprintable()
        and "\\" not in name
        and not PureWindowsPath(name).drive
        and not {"", ".", ".."} & {*name.split("/")}
    )
