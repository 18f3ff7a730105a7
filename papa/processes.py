"""Processes by machine, id and start, as an id alone is used again and on every machine."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process on a machine, by its start in clock ticks after boot; 0 where the system does not
    say.
    """

    host: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}"

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """The process that ``str`` wrote; None where the text is something else."""
        host, _, rest = text.rpartition(":")[0].rpartition(":")
        started = text.rpartition(":")[2]
        return (
            cls(host, int(rest), int(started))
            if host and rest.isdecimal() and started.isdecimal()
            else None
        )

    @classmethod
    def this(cls) -> Process:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), start_of(os.getpid()) or 0)

    @property
    def here(self) -> bool:
        """Whether it belongs to this machine."""
        return self.host == socket.gethostname()

    @property
    def gone(self) -> bool:
        """Whether it surely does not run any more; a process of another machine is never gone."""
        if not self.here:
            return False
        if Path("/proc/self/stat").exists():
            return start_of(self.pid) != self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def start_of(pid: int) -> int | None:
    """When a process started, in clock ticks after boot; None where there is none (or no /proc)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold spaces; the state follows it, the start time is 19 fields on.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
