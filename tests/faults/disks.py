"""Folders that may not be written to for a while."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def forbid_writing(folder: Path) -> None:
    """Make a folder read-only, for root too; skips the test where it cannot be."""
    try:
        for options in (["--bind", str(folder)], ["-o", "remount,ro,bind"]):
            subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system needs root")


def allow_writing(folder: Path) -> None:
    """Take that back."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
