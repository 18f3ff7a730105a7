"""Files and folders that appear whole or not at all: written aside, then renamed."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = r"\d+\.[0-9a-f]{8}"
"""What ends the name of what is written aside: by which process, and 8 random digits."""


def aside(path: Path) -> Path:
    """A name beside ``path`` that nothing else has."""
    return path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A new folder on the disk of ``path``, to be renamed into place; it is gone when the block
    ends otherwise.
    """
    scratch = aside(path)
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk, ahead of a rename."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path) -> None:
    """Likewise for all that lies in a folder, and the folder."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file beside ``path`` and rename it into place; an error leaves what was there."""
    scratch = aside(path)
    try:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(scratch)
        scratch.replace(path)
        sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)
