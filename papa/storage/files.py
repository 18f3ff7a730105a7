"""Files in a folder of this machine or behind a URI, by fsspec. Who else can write there may plant
links: none below the address is followed.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from papa.credentials import WHERE_INSTEAD, holds_credentials
from papa.errors import ArtifactError, DamagedError, PapaError, TransientError
from papa.storage.atomic import scratch_beside, write_atomically
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
_OTHER = "give a folder, or a URI such as s3://bucket/prefix"


@dataclass(frozen=True)
class StoredFile:
    """A file by its path below the address that was asked, with slashes, and when it was written,
    in seconds since 1970.
    """

    path: str
    size: int
    modified: float


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
                raise _in_one_sentence(self.address, error) from None
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
            if self.folder is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            try:
                if self.folder is not None:
                    write_atomically(Path(path), data, new=new)
                else:
                    mode = "create" if new else "overwrite"
                    files.pipe_file(path, data, mode=mode, **_limit(files))
            except OSError as error:
                if isinstance(error, FileExistsError) or _code(error) in _TAKEN:
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
        with self._at(below) as (files, path):
            found = files.find(path, detail=True)
        return [
            StoredFile(name.removeprefix(f"{path}/"), entry["size"], _modified(entry))
            for name, entry in found.items()
            if name.startswith(f"{path}/") and entry["type"] == "file" and not entry.get("islink")
        ]

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
    options = _S3 if uri.startswith(("s3://", "s3a://")) else {}
    try:
        return url_to_fs(uri, use_listings_cache=False, **options)
    except (ImportError, ValueError) as error:
        raise ArtifactError(f"{uri} is no address of a store ({error}): {_OTHER}") from None


def _limit(files: Any) -> dict[str, float]:
    """For small files: not every wait of every filesystem has an end."""
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


def _modified(entry: Mapping[str, Any]) -> float:
    """When an object was written; now where its filesystem does not tell."""
    moment = entry.get("LastModified") or entry.get("mtime") or time.time()
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
