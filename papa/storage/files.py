"""Files of a store, in a folder or by fsspec behind a URI. Others may plant links: none below an
address is followed.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from papa.credentials import WHERE_INSTEAD, holds_credentials
from papa.errors import ArtifactError, PapaError, TransientError
from papa.files import scratch_beside, write_atomically

Address = str | Path
_PATIENCE = {"connect_timeout": 5, "read_timeout": 15, "retries": {"total_max_attempts": 1}}
"""With a server for S3, whose answers s3fs asks for five times."""
_OTHER = "give a folder, or a URI such as s3://bucket/prefix"


class Files:
    """The files at an address, which is that of ``folder`` where it is no URI; names in calls are
    below it, with slashes. An ArtifactError where they cannot be used, a TransientError of a URI.
    """

    def __init__(self, address: Address) -> None:
        text = str(address).removeprefix("file://")
        if holds_credentials(text):
            raise ArtifactError(
                f"the store's address holds a user, password, key or token: {WHERE_INSTEAD}"
            )
        if "://" not in text and re.match(r"[a-z][a-z0-9+.-]+:", text):
            raise ArtifactError(f"'{text}' is no address of a store: {_OTHER}")
        self.folder = None if "://" in text else Path(os.path.abspath(Path(text).expanduser()))
        self.address = str(self.folder or text.rstrip("/"))

    @contextmanager
    def used(self, name: str) -> Iterator[tuple[Any, str]]:
        """The filesystem and the path in it; what it raises becomes one sentence."""
        # Not at the top: it takes a while to import.
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        options = {"config_kwargs": _PATIENCE} if re.match("s3a?:", self.address) else {}
        files, root = LocalFileSystem(), self.address
        if self.folder is None:
            try:
                files, root = url_to_fs(self.address, use_listings_cache=False, **options)
            except (ImportError, ValueError) as error:
                what = f"{self.address} is no address of a store ({error})"
                raise ArtifactError(f"{what}: {_OTHER}") from None
        try:
            if self.folder is not None:
                refuse_links(self.folder, self.folder / name)
            yield files, f"{root}/{name}".rstrip("/")
        except PapaError:
            raise
        except Exception as error:
            said = " ".join(str(error).split())
            if self.folder is None:
                at, kind = f" at {endpoint()}" if endpoint() else "", type(error).__name__
                raise TransientError(
                    f"{self.address}{at} cannot be used ({kind}: {said}): check that its bucket is "
                    "there, the network, AWS_ENDPOINT_URL, and in AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY credentials that may list, read, write and delete"
                ) from None
            if not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EROFS):
                raise
            raise ArtifactError(
                f"{self.folder / name} cannot be read or written ({error.strerror or said}): check "
                "its rights, and that its disk has hard links, or give another folder with --store"
            ) from None

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None where there is none."""
        with self.used(name) as (files, path), suppress(FileNotFoundError, NotADirectoryError):
            return bytes(files.cat_file(path))
        return None

    def write(self, name: str, data: bytes) -> bool:
        """Write a small file, and tell whether it was new: of two writers one wins."""
        with self.used(name) as (files, path):
            try:
                if self.folder is None:
                    files.pipe_file(path, data, mode="create")
                else:
                    with scratch_beside(Path(path)) as scratch:
                        (scratch / "new").write_bytes(data)
                        os.link(scratch / "new", path)
            except OSError:
                if not files.exists(path):
                    raise
                return False
        return True

    def replace(self, name: str, data: bytes) -> bool:
        """Write a small file in one piece, over what is there; returns True."""
        with self.used(name) as (files, path):
            if self.folder is None:
                files.pipe_file(path, data)
            else:
                write_atomically(Path(path), data)
        return True

    def find(self, below: str = "") -> dict[str, tuple[int, float]]:
        """Every file below a folder, and no link: path from there → size, seconds since 1970."""
        with self.used(below) as (system, path):
            found = system.find(path, detail=True)
        files = {}
        for name, entry in found.items():
            if name.startswith(f"{path}/") and entry["type"] == "file" and not entry.get("islink"):
                # Not every filesystem tells when a file was written.
                moment = entry.get("LastModified") or entry.get("mtime") or time.time()
                seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
                files[name.removeprefix(f"{path}/")] = entry["size"], seconds
        return files

    def remove(self, name: str = "") -> None:
        """Remove a file or folder, if there is one; of a link, the link."""
        with self.used("") as (files, root), suppress(FileNotFoundError, NotADirectoryError):
            files.rm(f"{root}/{name}".rstrip("/"), recursive=True)


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


def endpoint() -> str:
    """The S3-compatible server that the environment names; empty where it names none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
