"""Files in a folder of this machine or behind a URI, by fsspec. Who else can write there may plant
links: none below the address is followed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from papa.credentials import WHERE_INSTEAD, holds_credentials
from papa.errors import ArtifactError, DamagedError, PapaError, TransientError
from papa.storage.atomic import aside, scratch_beside, sync, sync_below, write_atomically
from papa.storage.cache import endpoint, scratch_folder

Address = str | Path
_S3 = {
    "config_kwargs": {
        "connect_timeout": 5,
        "retries": {"mode": "standard", "total_max_attempts": 5},
    }
}
_ANSWER_SECONDS = 15.0
_TAKEN = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_PASSING = {"InternalError", "ServiceUnavailable", "SlowDown", "500", "503"}


@dataclass(frozen=True)
class StoredFile:
    """A file by its path below the address that was asked, with slashes, and when it was written,
    in seconds since 1970; a link, or what else has no bytes of its own, is not ``plain``.
    """

    path: str
    size: int
    modified: float
    plain: bool = True


class Files:
    """The files at an address; names in calls are below it, with slashes.

    Every method raises ArtifactError where they cannot be used, TransientError where what is behind
    a URI does not answer.

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
            raise ArtifactError(
                f"'{text}' is no address of a store: give a folder, or a URI such as "
                "s3://bucket/prefix"
            )
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
                raise _in_one_sentence(self.address, error) from None
            if not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EROFS):
                raise
            raise ArtifactError(
                f"{path} cannot be read or written ({error.strerror or error}): check its rights, "
                "or give another folder with --store"
            ) from None

    def check(self, *, write: bool) -> None:
        """Ask whether what is behind a URI can be read, or also written, before work starts; a
        folder says it with the first file.
        """
        if self.folder is not None:
            return
        with self._at(f".papa-{uuid.uuid4().hex}") as (files, path):

            def ask() -> None:
                if write:
                    files.pipe_file(path, b"papa")
                    files.rm_file(path)
                else:
                    files.exists(path)

            _in_time(ask)

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None where there is none."""
        with self._at(name) as (files, path):
            try:
                if self.folder is not None and not stat.S_ISREG(os.stat(path).st_mode):
                    raise IsADirectoryError(errno.EISDIR, "it is no file")
                # A range spares s3fs its question for the size, and tells more when it is refused.
                return bytes(files.cat_file(path, start=0))
            except (FileNotFoundError, NotADirectoryError) as error:
                if _code(error) == "NoSuchBucket":
                    raise
                return None
            except OSError as error:
                # An empty object has no first byte.
                if _code(error) == "InvalidRange":
                    return b""
                raise

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all, over what was there."""
        with self._at(name) as (files, path):
            if self.folder is None:
                files.pipe_file(path, data)
            else:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                write_atomically(Path(path), data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file where there is none, and tell whether there was none: of two writers
        one wins, on S3 by ``If-None-Match: *``.
        """
        with self._at(name) as (files, path):
            try:
                if self.folder is None:
                    files.pipe_file(path, data, mode="create")
                else:
                    _link_new(Path(path), data)
            except FileExistsError:
                return False
            except OSError as error:
                if _code(error) in _TAKEN:
                    return False
                raise
            return True

    def scratch(self) -> AbstractContextManager[Path]:
        """An empty folder, on the same disk where there is one, that goes with the block."""
        return scratch_folder() if self.folder is None else scratch_beside(self.folder)

    def put(self, source: Path, name: str) -> None:
        """Have the files of a folder appear below a name; the folder may be gone then."""
        with self._at(name) as (files, path):
            if self.folder is None:
                names = [found for found in source.rglob("*") if found.is_file()]
                to = [f"{path}/{found.relative_to(source).as_posix()}" for found in names]
                files.put([str(found) for found in names], to)
                return
            sync_below(source)
            self.folder.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                _remove(Path(path))
            source.rename(path)
            sync(self.folder)

    def get(self, folder: str, names: Iterable[str], to: Path) -> None:
        """Copy files from below a folder to one of this machine."""
        with self._at(folder) as (files, path):
            names = list(names)
            try:
                files.get([f"{path}/{name}" for name in names], [str(to / name) for name in names])
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                what = f"{self.address} is damaged (a file under {folder[:12]}… is missing)"
                raise DamagedError(what, self.address) from None

    def find(self, below: str = "") -> list[StoredFile]:
        """Every file below the address, or below a folder in it; a link counts as a file."""
        with self._at(below) as (files, path):
            found = files.find(path, detail=True)
        return [
            StoredFile(
                name.removeprefix(f"{path}/"),
                entry["size"],
                _modified(entry),
                entry["type"] == "file" and not entry.get("islink"),
            )
            for name, entry in found.items()
            if name.startswith(f"{path}/") and entry["type"] != "directory"
        ]

    def metadata_below(self, name: str) -> dict[str, bytes]:
        """The file ``name`` of every folder directly below the address that has one, by folder; one
        that is removed meanwhile is left out.
        """
        there = (file.path.rpartition("/") for file in self.find() if file.plain)
        folders = [
            folder
            for folder, _, found in there
            if found == name and folder and "/" not in folder and folder[0] != "."
        ]
        if self.folder is not None:
            read = {folder: self.read(f"{folder}/{name}") for folder in folders}
            return {folder: data for folder, data in read.items() if data is not None}
        with self._at("") as (files, root):
            paths = {f"{root}/{folder}/{name}": folder for folder in folders}
            # All at once.
            found = files.cat(list(paths), on_error="omit") if paths else {}
        return {paths[path]: data for path, data in found.items()}

    def remove(self, name: str = "") -> None:
        """Remove a file or folder, if there is one."""
        with self._at("") as (files, root):
            path = f"{root}/{name}".rstrip("/")
            with suppress(FileNotFoundError):
                if self.folder is None:
                    files.rm(path, recursive=True)
                else:
                    _remove(Path(path))


def filesystem(uri: str) -> tuple[Any, str]:
    """The filesystem of a URI or folder and the path in it."""
    # Not at the top: it takes a while to import.
    import fsspec
    from fsspec.core import url_to_fs

    protocol, remote, _ = uri.partition("://")
    if not remote:
        return fsspec.filesystem("file"), uri
    options = _S3 if protocol in ("s3", "s3a") else {}
    try:
        return url_to_fs(uri, use_listings_cache=False, **options)
    except ImportError as error:
        raise ArtifactError(
            f"{uri}: a package for '{protocol}://' is not installed ({error})"
        ) from None
    except ValueError as error:
        raise ArtifactError(
            f"{uri} is no address of a store ({error}): give a folder, or a URI such as "
            "s3://bucket/prefix"
        ) from None


def _in_time(action: Callable[[], object]) -> None:
    """Run an action in a thread, as not every wait of every filesystem has an end."""
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    done.result(_ANSWER_SECONDS)


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


def _link_new(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; FileExistsError where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = aside(path)
    try:
        scratch.write_bytes(data)
        sync(scratch)
        try:
            os.link(scratch, path)
        except FileExistsError:
            raise
        except OSError:  # Some file systems have no hard links.
            if path.exists():
                raise FileExistsError(path) from None
            scratch.rename(path)
        sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """Nobody sees a part of a folder."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    gone = aside(path)
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _modified(entry: Mapping[str, Any]) -> float:
    """When an object was written; now where its filesystem does not tell."""
    moment = (
        entry.get("LastModified") or entry.get("mtime") or entry.get("last_modified") or time.time()
    )
    return moment.timestamp() if isinstance(moment, datetime) else float(moment)


def _code(error: BaseException) -> str:
    """The code of an S3 error; empty for others."""
    return str(getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", ""))


def _in_one_sentence(uri: str, error: Exception) -> PapaError:
    code, kind = _code(error), type(error).__name__
    reason = " ".join(str(error).split()).rstrip(".") or "no answer"
    if "Connect" in kind or "Timeout" in kind or code in _PASSING:
        where = f" at {endpoint()}" if endpoint() else ""
        return TransientError(
            f"{uri}{where} cannot be reached ({reason}): check AWS_ENDPOINT_URL and the network"
        )
    if isinstance(error, FileNotFoundError):
        return ArtifactError(f"{uri} is not there ({reason}): create its bucket, or give another")
    return ArtifactError(
        f"{uri} cannot be used ({code or kind}: {reason}): check the address, and in "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY credentials that may list, read, write and "
        "delete"
    )
