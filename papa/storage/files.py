"""Files that appear whole or not at all: in a folder of this machine, or by fsspec behind a URI.
Who else can write there may plant links: none below an address is followed.

What lies elsewhere has its place in this machine's cache, ``$PAPA_CACHE`` or ``~/.cache/papa``::

    <cache>/artifacts/<parent>/<name>/<digest>/   a fetched copy of an artifact
    <cache>/checked/<key>.json                    what checks of encoders found before
    <cache>/stores/<store>/                       what a store behind a URI keeps on this machine
    <cache>/scratch/                              uploads and downloads under way

Any of it may be deleted while nothing runs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from papa.credentials import WHERE_INSTEAD, holds_credentials
from papa.errors import ArtifactError, DamagedError, PapaError, TransientError

Address = str | Path
_PATIENCE = {"connect_timeout": 5, "retries": {"mode": "standard", "total_max_attempts": 5}}
"""With a server for S3."""
_ANSWER_SECONDS = 15.0
_OTHER = "give a folder, or a URI such as s3://bucket/prefix"
MARK = r"\d+\.[0-9a-f]{8}"
"""What ends the name of what is written aside: by which process, and 8 random digits."""


class StoredFile(NamedTuple):
    """A file by its path below the address that was asked, with slashes, and when it was written,
    in seconds since 1970.
    """

    path: str
    size: int
    modified: float


class Files:
    """The files at an address; names in calls are below it, with slashes.

    Every method raises ArtifactError where they cannot be used, TransientError behind a URI.

    Attributes:
        folder: the address where it is a folder of this machine; None for a URI.
    """

    def __init__(self, address: Address) -> None:
        text = str(address).removeprefix("file://")
        if holds_credentials(text):
            raise ArtifactError(
                f"the store's address holds a user, password, key or token: {WHERE_INSTEAD}"
            )
        remote = "://" in text
        if not remote and re.match(r"[a-z][a-z0-9+.-]+:", text):
            raise ArtifactError(f"'{text}' is no address of a store: {_OTHER}")
        self.folder = None if remote else Path(os.path.abspath(Path(text).expanduser()))
        self.address = text.rstrip("/") if remote else str(self.folder)

    @contextmanager
    def _at(self, name: str) -> Iterator[tuple[Any, str]]:
        """The filesystem and the path in it; what it raises becomes one sentence."""
        files, root = filesystem(self.address)
        path = f"{root}/{name}".rstrip("/")
        try:
            if self.folder is not None:
                refuse_links(self.folder, Path(path))
            yield files, path
        except PapaError:
            raise
        except Exception as error:
            if self.folder is None:
                at, kind = f" at {endpoint()}" if endpoint() else "", type(error).__name__
                reason = " ".join(str(error).split()).rstrip(".") or "no answer"
                raise TransientError(
                    f"{self.address}{at} cannot be used ({kind}: {reason}): check that its bucket "
                    "is there, the network, AWS_ENDPOINT_URL, and in AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY credentials that may list, read, write and delete"
                ) from None
            if not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EROFS):
                raise
            raise ArtifactError(
                f"{path} cannot be read or written ({error.strerror or error}): check its rights, "
                "or give another folder with --store"
            ) from None

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None where there is none."""
        with self._at(name) as (files, path), suppress(FileNotFoundError, NotADirectoryError):
            # A range spares s3fs its question for the size, and tells more when it is refused.
            return bytes(files.cat_file(path, start=0, **_limit(files)))
        return None

    def write(self, name: str, data: bytes, *, new: bool = False) -> bool:
        """Write a small file, whole or not at all, and tell whether it was written: where it must
        be ``new``, of two writers one wins, on S3 by ``If-None-Match: *``.
        """
        with self._at(name) as (files, path):
            try:
                if self.folder is None:
                    mode = "create" if new else "overwrite"
                    files.pipe_file(path, data, mode=mode, **_limit(files))
                else:
                    write_atomically(Path(path), data, new=new)
            except OSError:
                if not (new and files.exists(path, **_limit(files))):
                    raise
                return False
        return True

    def put(self, source: Path, name: str) -> None:
        """Have the files of a folder appear below a name; the folder may be gone then."""
        with self._at(name) as (files, path):
            if self.folder is None:
                names = [found for found in source.rglob("*") if found.is_file()]
                to = [f"{path}/{found.relative_to(source).as_posix()}" for found in names]
                files.put([str(found) for found in names], to)
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                files.rm(path, recursive=True)
            source.rename(path)

    def get(self, folder: str, names: Iterable[str], to: Path) -> None:
        """Copy files from below a folder to one of this machine."""
        with self._at(folder) as (files, path):
            names = list(names)
            try:
                files.get([f"{path}/{name}" for name in names], [str(to / name) for name in names])
            except FileNotFoundError:
                what = f"{self.address} is damaged (a file under {folder[:12]}… is missing)"
                raise DamagedError(what, self.address) from None

    def find(self, below: str = "") -> list[StoredFile]:
        """Every file below the address, or below a folder in it, and no link."""
        with self._at(below) as (system, path):
            found = system.find(path, detail=True)
        files = []
        for name, entry in found.items():
            if name.startswith(f"{path}/") and entry["type"] == "file" and not entry.get("islink"):
                # Not every filesystem tells when a file was written.
                moment = entry.get("LastModified") or entry.get("mtime") or time.time()
                seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
                files.append(StoredFile(name.removeprefix(f"{path}/"), entry["size"], seconds))
        return files

    def remove(self, name: str = "") -> None:
        """Remove a file or folder, if there is one; of a link, the link."""
        with self._at("") as (files, root), suppress(FileNotFoundError, NotADirectoryError):
            files.rm(f"{root}/{name}".rstrip("/"), recursive=True)


def filesystem(uri: str) -> tuple[Any, str]:
    """The filesystem of a URI or folder and the path in it."""
    # Not at the top: it takes a while to import.
    import fsspec
    from fsspec.core import url_to_fs

    if "://" not in uri:
        return fsspec.filesystem("file"), uri
    options = {"config_kwargs": _PATIENCE} if uri.startswith(("s3://", "s3a://")) else {}
    try:
        return url_to_fs(uri, use_listings_cache=False, **options)
    except (ImportError, ValueError) as error:
        raise ArtifactError(f"{uri} is no address of a store ({error}): {_OTHER}") from None


def _limit(files: Any) -> dict[str, float]:
    """For small files: s3fs repeats what its client repeats already."""
    return {"timeout": _ANSWER_SECONDS} if files.async_impl else {}


def refuse_links(root: Path, path: Path) -> None:
    """Refuse a path that is a link, or below one that lies in ``root`` or is it."""
    for part in (path, *path.parents):
        if part.is_symlink():
            raise ArtifactError(
                f"{part} is a link, and nothing of a store lies outside it: put what it names in "
                "its place, or remove it"
            )
        if part == root:
            return


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A new folder on the disk of ``path``, to be renamed into place; it is gone when the block
    ends otherwise.
    """
    scratch = _aside(path)
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_atomically(path: Path, content: bytes | str, *, new: bool = False) -> None:
    """Write a file beside ``path``, in a folder that is made where there is none, and rename it
    into place; FileExistsError where it must be ``new`` and is not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = _aside(path)
    try:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        if new:
            try:
                return os.link(scratch, path)
            except FileExistsError:
                raise
            except OSError:  # Some file systems have no hard links.
                if path.exists():
                    raise FileExistsError(path) from None
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Where this machine keeps what it fetched."""
    return Path(os.path.abspath(Path(os.environ.get("PAPA_CACHE") or "~/.cache/papa").expanduser()))


def local_name(uri: str) -> str:
    """A name for a URI that a person recognises and that no other URI, nor the same one at another
    S3-compatible server, has.
    """
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", uri.partition("://")[2]).strip("-.")[-80:]
    return f"{readable}-{hashlib.sha256(f'{endpoint()} {uri}'.encode()).hexdigest()[:16]}"


def endpoint() -> str:
    """The S3-compatible server that the environment names; empty where it names none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def copies_of(address: str) -> Path:
    """The folder that holds this machine's copies of the artifact at a URI, each by its digest."""
    parent, _, name = address.rpartition("/")
    return cache_folder() / "artifacts" / local_name(parent) / name
