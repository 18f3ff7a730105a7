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


def write_atomically(path: Path, content: bytes | str, *, new: bool = False) -> None:
    """Write a file beside ``path`` and rename it into place; FileExistsError where it must be
    ``new`` and is not.
    """
    scratch = aside(path)
    try:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        if new and _linked(scratch, path):
            return
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _linked(scratch: Path, path: Path) -> bool:
    """Whether the file is there now, by a link, of which one alone succeeds."""
    try:
        os.link(scratch, path)
    except FileExistsError:
        raise
    except OSError:  # Some file systems have no hard links.
        if path.exists():
            raise FileExistsError(path) from None
        return False
    return True
