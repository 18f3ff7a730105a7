"""Temporary folders of a command; the next command removes those of commands that were killed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

_PREFIX = "papa-"
_LOCK = "lock"
_own_folders = set[Path]()
"""The temporary folders of this process."""


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Yield a new folder that only this user may enter, deleted when the block ends.

    The system releases its lock when this process dies: ``remove_abandoned`` of another command
    then removes the folder.
    """
    remove_abandoned()
    # Hidden until it is locked, so that no other command takes it for abandoned.
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{purpose}-", dir=_parent()))
    lock = FileLock(hidden / _LOCK, thread_local=False)
    lock.acquire(blocking=False)
    folder = hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))
    _own_folders.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _own_folders.discard(folder)
        lock.release()


def remove_own_folders() -> None:
    """Remove the folders of this process, which is about to end inside their blocks."""
    for folder in list(_own_folders):  # A copy: another thread may leave its block meanwhile.
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove this user's folders whose command no longer runs."""
    for entry in os.scandir(_parent()):
        # Another command may remove the same folder, or hold its lock.
        with suppress(OSError):
            # Links are not followed: other users may create them in the parent.
            is_folder = entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False)
            lock = Path(entry.path, _LOCK)
            if not is_folder or not lock.is_file():
                continue
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                with FileLock(lock, blocking=False):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _parent() -> Path:
    """Return the system's folder, or /tmp if its path is long: Ray's sockets need short paths."""
    return Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= 20 else "/tmp")
