"""Files of a store, in a folder or by fsspec behind a URI. Others may plant links, also while a run
works: every call opens its folders one below the other and follows none.
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
from io import BufferedReader
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
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_HELD = _LISTED | getattr(os, "O_PATH", 0)
"""To pass through a folder, which on Linux takes no right to list it."""
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
    def used(self, name: str) -> Iterator[tuple[AbstractFileSystem | None, str]]:
        """Yield the filesystem, None of a folder, and the path in it; what it raises becomes one
        sentence.
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
        try:
            yield files, f"{root}/{name}".rstrip("/")
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
        with self.used(name) as (files, path), suppress(FileNotFoundError, NotADirectoryError):
            if files is not None:
                return bytes(files.cat_file(path))
            with open_file(Path(path)) as file:
                return file.read()
        return None

    def write(self, name: str, data: bytes) -> bool:
        """Write a small file, and tell whether it was new: of two writers one wins."""
        with self.used(name) as (files, path):
            try:
                if files is not None:
                    files.pipe_file(path, data, mode="create")
                else:
                    with _written_beside(Path(path), data) as (scratch, handle):
                        os.link(
                            scratch,
                            Path(path).name,
                            src_dir_fd=handle,
                            dst_dir_fd=handle,
                            follow_symlinks=False,
                        )
            except OSError:
                if not (files.exists(path) if files is not None else _lies_there(Path(path))):
                    raise
                return False
        return True

    def replace(self, name: str, data: bytes) -> bool:
        """Write a small file whole, in the place of what has its name; returns True."""
        with self.used(name) as (files, path):
            if files is not None:
                files.pipe_file(path, data)
            else:
                with _written_beside(Path(path), data) as (scratch, handle):
                    os.replace(scratch, Path(path).name, src_dir_fd=handle, dst_dir_fd=handle)
        return True

    def rename(self, name: str, new: str) -> None:
        """Give a file or folder beside the others another name, which nothing has."""
        with self.used(name) as (_, path), held_folder(Path(path).parent) as handle:
            os.rename(Path(path).name, new, src_dir_fd=handle, dst_dir_fd=handle)

    @contextmanager
    def filled(self, name: str) -> Iterator[Path]:
        """Yield a new folder of this machine to fill, which lies at ``name`` when the block ends
        without an error. Until then nobody else can put a link into it.
        """
        local = self.local / name
        try:
            # Where there is /proc its path leads to it also if a folder above is exchanged.
            with held_folder(local.parent, make=True) as parent:
                os.mkdir(local.name, 0o700, dir_fd=parent)
                handle = os.open(local.name, _LISTED, dir_fd=parent)
                try:
                    by_handle = Path(f"/proc/self/fd/{handle}")
                    yield by_handle if by_handle.exists() else local
                    _grant_tree(handle, parent)
                finally:
                    os.close(handle)
            if self.folder is None:
                paths = [str(path) for path in local.rglob("*") if path.is_file()]
                with self.used(name) as (files, there):
                    assert files is not None
                    files.put(paths, [f"{there}{path.removeprefix(str(local))}" for path in paths])
        finally:
            if self.folder is None:
                shutil.rmtree(local, ignore_errors=True)

    def find(self, below: str = "") -> dict[str, tuple[int, float]]:
        """Return every file below a folder, and no link: path from there → size, seconds since
        1970.
        """
        with self.used(below) as (system, path):
            if system is None:
                with suppress(FileNotFoundError, NotADirectoryError):
                    return dict(_files_below(Path(path)))
                return {}
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
        """Remove a file or folder, if there is one; of a link, the link."""
        with self.used(name) as (files, path), suppress(FileNotFoundError, NotADirectoryError):
            if files is not None:
                files.rm(path, recursive=True)
                return
            with held_folder(Path(path).parent) as handle:
                last = Path(path).name
                if stat.S_ISDIR(os.stat(last, dir_fd=handle, follow_symlinks=False).st_mode):
                    shutil.rmtree(last, dir_fd=handle)
                else:
                    os.unlink(last, dir_fd=handle)


def without_links(address: Address) -> Address:
    """Return an address that a user gave: links above its last part, which are the user's, are
    followed here and never again.
    """
    folder = Files(address).folder
    return address if folder is None else folder.parent.resolve() / folder.name


@contextmanager
def held_folder(path: Path, *, make: bool = False) -> Iterator[int]:
    """Hold the folder at an absolute path by a handle, for calls that take a ``dir_fd``, while
    others may put anything else in its place; where ``make`` it is made. An ArtifactError where a
    part of the path is a link.
    """
    handle = os.open(path.anchor, _HELD)
    try:
        for folder in [*reversed(path.parents), path][1:]:
            with refused_link(folder, handle):
                below = _below(folder.name, handle, make)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


@contextmanager
def open_file(path: Path) -> Iterator[BufferedReader]:
    """Open a file to be read; an ArtifactError where it or a part of its path is a link."""
    with held_folder(path.parent) as handle:
        with refused_link(path, handle):
            file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=handle)
        with open(file, "rb") as opened:
            yield opened


def _below(name: str, handle: int, make: bool) -> int:
    try:
        return os.open(name, _HELD, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=handle)
        new_folder = os.open(name, _LISTED, dir_fd=handle)
        try:
            _grant(new_folder, os.fstat(handle))
        finally:
            os.close(new_folder)
    return os.open(name, _HELD, dir_fd=handle)


def _grant(descriptor: int, above: os.stat_result) -> None:
    """Give a new file or folder the group of the folder above, and the rights that this folder
    has for its group; other users get none.

    The umask does not decide: some libraries write files of mode 0600 under any, and Ray's
    workers on other machines have that of their node.
    """
    status = os.fstat(descriptor)
    if status.st_gid != above.st_gid:
        # Who is not in the group cannot give it anything.
        with suppress(PermissionError):
            os.fchown(descriptor, -1, above.st_gid)
    mode = 0o770 if above.st_mode & stat.S_IWGRP else 0o700
    if stat.S_ISDIR(status.st_mode):
        mode |= above.st_mode & stat.S_ISGID
    else:
        mode &= 0o660
    os.fchmod(descriptor, mode)


def _grant_tree(folder: int, parent: int) -> None:
    """Grant a new folder and all in it, which only this user can reach until then."""
    above = os.fstat(parent)
    for _, folders, files, handle in os.fwalk(".", dir_fd=folder):
        for name in (*folders, *files):
            # A pipe that lies there would be waited for.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(name, flags, dir_fd=handle)
            try:
                _grant(descriptor, above)
            finally:
                os.close(descriptor)
    _grant(folder, above)


@contextmanager
def refused_link(path: Path, handle: int) -> Iterator[None]:
    """Raise ``link_error`` where the block cannot open ``path``, in ``handle``, as it is a link."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            status = os.stat(path.name, dir_fd=handle, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise link_error(path) from None
        raise


def link_error(path: Path) -> ArtifactError:
    """Return what is wrong with a path of a store that is a link."""
    return ArtifactError(
        f"{path} is a link, and links in a store are refused: replace it by the file that it "
        "points to, or remove it"
    )


@contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[tuple[str, int]]:
    """Write a file beside ``path``; yields its name, and the folder's handle. It is gone when the
    block ends, unless renamed.
    """
    with held_folder(path.parent, make=True) as handle:
        name = name_aside(path.name)
        try:
            new = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=handle)
            with open(new, "wb") as file:
                file.write(data)
                _grant(file.fileno(), os.fstat(handle))
            yield name, handle
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)


def _lies_there(path: Path) -> bool:
    with suppress(FileNotFoundError), held_folder(path.parent) as handle:
        return bool(os.stat(path.name, dir_fd=handle, follow_symlinks=False))
    return False


def _files_below(folder: Path) -> Iterator[tuple[str, tuple[int, float]]]:
    with held_folder(folder) as top:
        for inner, _, names, handle in os.fwalk(".", dir_fd=top):
            for name in names:
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        path = f"{inner}/{name}".removeprefix("./")
                        yield path, (status.st_size, status.st_mtime)


def endpoint() -> str:
    """Return the S3-compatible server that the environment names; empty where it names none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
