"""Temporary folders of a command; the next command removes those of commands that were killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

_PREFIX, _LOCK = "papa-", "lock"
_held = set[Path]()


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Yield a new folder that its owner alone may enter; it is gone when the block ends.

    Its lock is released by the system when this process dies, so that ``remove_abandoned`` of
    another command removes it.
    """
    remove_abandoned()
    # It gets its name once it is locked: no other command takes it for abandoned before.
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{purpose}-", dir=_parent()))
    lock = FileLock(hidden / _LOCK, thread_local=False)
    lock.acquire(blocking=False)
    folder = hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))
    _held.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _held.discard(folder)
        lock.release()


def remove_held() -> None:
    """Remove the folders of this process, which is about to end without leaving their blocks."""
    for folder in list(_held):  # Another thread may leave a block meanwhile.
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove this user's folders whose command is dead."""
    for entry in os.scandir(_parent()):
        # Another command may remove the same folder, or hold its lock.
        with suppress(OSError):
            # Whoever may write to the parent may put a link there.
            is_folder = entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False)
            lock = Path(entry.path, _LOCK)
            if not is_folder or not lock.is_file():
                continue
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                with FileLock(lock, blocking=False):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _parent() -> Path:
    """Return the system's folder, or one of a short path: those of Ray's sockets are limited."""
    return Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= 20 else "/tmp")
