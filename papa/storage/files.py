"""Files of a store, in a folder or by fsspec behind a URI. Others may have put links into it: every
call refuses them.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from papa.credentials import WHERE_INSTEAD, holds_credentials
from papa.errors import ArtifactError, PapaError, TransientError
from papa.files import cache_folder, name_aside

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Address = str | Path
_PATIENCE = {"connect_timeout": 5, "read_timeout": 15, "retries": {"total_max_attempts": 1}}
"""With a server for S3, whose answers s3fs asks for five times."""
_BLOCK_BYTES = 512
"""The unit of ``st_blocks`` (man 2 stat)."""
_OTHER = "give a folder, or a URI such as s3://bucket/prefix"


class Files:
    """The files at an address, which is that of ``folder`` where it is no URI; names in calls are
    below it, with slashes. An ArtifactError where they cannot be used, a TransientError of a URI.

    In a folder no part of a path may be a link, looked at anew by each call: whoever takes the
    address from a user passes it through ``without_links``.
    """

    def __init__(self, address: Address) -> None:
        text = str(address).removeprefix("file://")
        if holds_credentials(text):
            raise ArtifactError(
                f"the store's address holds a user, password, key or token: {WHERE_INSTEAD}"
            )
        if "://" not in text and re.match(r"[a-z][a-z0-9+.-]+:", text):
            raise ArtifactError(f"'{text}' is not a store address: {_OTHER}")
        self.folder = None if "://" in text else Path(os.path.abspath(Path(text).expanduser()))
        self.address = str(self.folder or text.rstrip("/"))
        self.local = self.folder or cache_folder() / "scratch"

    @contextmanager
    def access(self, name: str) -> Iterator[tuple[AbstractFileSystem | None, str]]:
        """Yield the filesystem that a file is on, None in a folder, and the path in it; what the
        block raises becomes one sentence.
        """
        files: AbstractFileSystem | None = None
        root = self.address
        if self.folder is None:
            # Not at the top: it takes a while to import.
            from fsspec.core import url_to_fs

            options = {"config_kwargs": _PATIENCE} if re.match("s3a?:", self.address) else {}
            try:
                files, root = url_to_fs(self.address, use_listings_cache=False, **options)
            except (ImportError, ValueError) as error:
                raise ArtifactError(
                    f"'{self.address}' is not a store address ({error}): {_OTHER}"
                ) from None
        path = f"{root}/{name}".rstrip("/")
        try:
            if files is None:
                refuse_links(Path(path))
            yield files, path
        except PapaError:
            raise
        except Exception as error:
            message = " ".join(str(error).split())
            if self.folder is None:
                server = f" at {endpoint()}" if endpoint() else ""
                raise TransientError(
                    f"{self.address}{server} cannot be used ({type(error).__name__}: {message}): "
                    "check that its bucket is there, the network, AWS_ENDPOINT_URL, and in "
                    "AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY credentials that may list, read, write and delete"
                ) from None
            if not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EROFS):
                raise
            raise ArtifactError(
                f"{self.folder / name} cannot be read or written ({error.strerror or message}): "
                "check its rights, and that its disk has hard links, or give another folder with "
                "--store"
            ) from None

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        with self.access(name) as (files, path), suppress(FileNotFoundError, NotADirectoryError):
            return Path(path).read_bytes() if files is None else bytes(files.cat_file(path))
        return None

    def write(self, name: str, data: bytes, *, replace: bool = False) -> bool:
        """Write a small file whole, if there is none of its name, or to ``replace`` that one.
        Return whether it was written: of two writers who replace nothing one wins.
        """
        with self.access(name) as (files, path):
            try:
                if files is not None:
                    files.pipe_file(path, data, mode="overwrite" if replace else "create")
                else:
                    with _written_beside(Path(path), data) as scratch:
                        if replace:
                            scratch.replace(path)
                        else:
                            Path(path).hardlink_to(scratch)
            except OSError:
                if replace or not (Path(path).exists() if files is None else files.exists(path)):
                    raise
                return False
        return True

    def rename(self, name: str, new: str) -> None:
        """Give a file or folder beside the others another name, which nothing has."""
        with self.access(name) as (_, path):
            Path(path).rename(Path(path).with_name(new))

    @contextmanager
    def filled(self, name: str) -> Iterator[Path]:
        """Yield a new folder of this machine to fill, which lies at ``name`` when the block ends
        without an error. Until then only its owner may enter it.
        """
        local = self.local / name
        try:
            make_folders(local.parent)
            local.mkdir(mode=0o700)
            yield local
            for path in (local, *sorted(local.rglob("*"))):
                _grant(path)
            if self.folder is None:
                paths = [str(path) for path in local.rglob("*") if path.is_file()]
                with self.access(name) as (files, there):
                    assert files is not None
                    files.put(paths, [f"{there}{path.removeprefix(str(local))}" for path in paths])
        finally:
            if self.folder is None:
                shutil.rmtree(local, ignore_errors=True)

    def find(self, below: str = "") -> dict[str, tuple[int, float]]:
        """Return every file below a folder, and no link: path from there → size, seconds since
        1970.
        """
        with self.access(below) as (system, path):
            if system is None:
                return dict(_files_below(Path(path)))
            entries = system.find(path, detail=True)
        files = {}
        for name, entry in entries.items():
            if name.startswith(f"{path}/") and entry["type"] == "file":
                # Not every filesystem tells when a file was written.
                moment = entry.get("LastModified") or entry.get("mtime") or time.time()
                seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
                files[name.removeprefix(f"{path}/")] = entry["size"], seconds
        return files

    def remove(self, name: str = "") -> None:
        """Remove a file or folder, if there is one."""
        with self.access(name) as (files, path), suppress(FileNotFoundError, NotADirectoryError):
            if files is not None:
                files.rm(path, recursive=True)
            elif Path(path).is_dir():
                shutil.rmtree(path)
            else:
                Path(path).unlink()


def without_links(address: Address) -> Address:
    """Return an address that a user gave: links above its last part, which are the user's, are
    followed here and never again.
    """
    folder = Files(address).folder
    return address if folder is None else folder.parent.resolve() / folder.name


def refuse_links(path: Path) -> None:
    """Raise an ArtifactError if an absolute path, or a folder above it, is a link."""
    for part in (path, *path.parents):
        if part.is_symlink():
            raise ArtifactError(
                f"{part} is a link, and links in a store are refused: replace it by the file that "
                "it points to, or remove it"
            )


def make_folders(path: Path) -> None:
    """Make a folder of a store, and those above it, for the group of the folder above them."""
    refuse_links(path)
    for folder in (*reversed(path.parents), path):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            _grant(folder)


def _grant(path: Path) -> None:
    """Give a new file or folder the group of the folder above, and the rights that this folder
    has for its group; other users get none.

    The umask does not decide: some libraries write files of mode 0600 under any, and Ray's
    workers on other machines have that of their node.
    """
    above = path.parent.stat()
    status = path.stat()
    if status.st_gid != above.st_gid:
        # Who is not in the group cannot give it anything.
        with suppress(PermissionError):
            os.chown(path, -1, above.st_gid)
    mode = 0o770 if above.st_mode & stat.S_IWGRP else 0o700
    if path.is_dir():
        mode |= above.st_mode & stat.S_ISGID
    else:
        mode &= 0o660
    path.chmod(mode)


@contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[Path]:
    """Write a file beside ``path``, which is gone when the block ends, unless renamed."""
    make_folders(path.parent)
    scratch = path.with_name(name_aside(path.name))
    try:
        scratch.touch(mode=0o600, exist_ok=False)
        scratch.write_bytes(data)
        _grant(scratch)
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def _files_below(top: Path) -> Iterator[tuple[str, tuple[int, float]]]:
    for folder, _, names in os.walk(top):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield path.relative_to(top).as_posix(), (status.st_size, status.st_mtime)


def bytes_on_disk(path: Path) -> int:
    """Return what a file, or a folder with all below it, takes on the disk, as ``du`` counts."""
    below = (Path(folder, name) for folder, *names in os.walk(path) for name in chain(*names))
    total = 0
    for part in chain([path], below):
        # Another run may have removed it meanwhile.
        with suppress(FileNotFoundError):
            total += part.lstat().st_blocks * _BLOCK_BYTES
    return total


def endpoint() -> str:
    """Return the S3-compatible server that the environment names; empty where it names none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
