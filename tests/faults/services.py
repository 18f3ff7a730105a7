"""Servers beside a study that are killed and started again as they were: same command, environment,
folder, ports.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass
class Revived:
    """A server, or the one that took its place."""

    process: subprocess.Popen[Any]

    def kill(self) -> None:
        """Kill it with all below it, and start another one."""
        known = psutil.Process(self.process.pid)
        environment, folder, below = known.environ(), known.cwd(), known.children(recursive=True)
        for one in (known, *below):
            one.kill()
        self.process.wait()
        self.process = subprocess.Popen(
            self.process.args,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@contextmanager
def revived(process: subprocess.Popen[Any]) -> Iterator[Revived]:
    """A server that may be killed in the block; whatever took its place ends with it."""
    one = Revived(process)
    try:
        yield one
    finally:
        if one.process is not process:
            for left in (*psutil.Process(one.process.pid).children(recursive=True), one.process):
                left.kill()
            one.process.wait()


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it is gone, or
    another user's.
    """
    try:
        pairs = (
            (Path("/proc") / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
        )
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
