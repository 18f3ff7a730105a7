"""Disks of a test's own: small ones, and folders that may not be written to for a while."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A file system of so many megabytes; skips the test where it cannot be mounted."""
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fill a disk to its last byte; returns the file that does."""
    place = disk / "fill"
    with place.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return place


def forbid_writing(folder: Path) -> None:
    """Make a folder read-only, for root too."""
    _mount("--bind", str(folder), str(folder))
    _mount("-o", "remount,ro,bind", str(folder))


def allow_writing(folder: Path) -> None:
    """Take that back."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system needs root")
